"""The paper's model: answers, padding, masks, restarts, what the probe sees."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import dcgraph as dc
from dcgraph.experiments.tasks.listops.baselines import StateTree
from dcgraph.experiments.tasks.listops.model.latent_tree import LatentTree
from dcgraph.experiments.tasks.listops.task import ListOps
from listops_models import OURS, TEXTS, VARIANTS, batch_of, inputs_of, tree_model


@pytest.mark.parametrize("name", ["paper", "counters", "states"])
def test_the_answer_is_the_value_of_the_root(name: str) -> None:
    torch.manual_seed(0)
    model = ListOps().model(replace(VARIANTS[name], edges="given")).eval()
    assert isinstance(model, LatentTree | StateTree)
    batch = batch_of(TEXTS)
    given = batch["tokens"], batch["length"], batch["parents"]
    values = model.run(*given)[1]
    torch.testing.assert_close(model(*given), values[:, 0] if values.ndim == 3 else values)


def test_masks_of_pairs_change_nothing_but_dropout() -> None:
    batch = batch_of(TEXTS)
    given = batch["tokens"], batch["length"], batch["parents"]
    answers = [tree_model(name).eval()(*given) for name in ("paper", "pairs")]
    assert tree_model("pairs").masks == "pair"
    torch.testing.assert_close(*answers)


@pytest.mark.parametrize("name", OURS)
def test_padding_changes_nothing(name: str) -> None:
    model = tree_model(name).eval()
    together = batch_of(TEXTS)
    edges, values = model.run(together["tokens"], together["length"], together["parents"])
    for row, text in enumerate(TEXTS):
        alone = batch_of((text,))
        length = int(alone["length"])
        own_edges, own_values = model.run(alone["tokens"], alone["length"], alone["parents"])
        start = (
            0 if model.edges.silent_root or model.edges.encode is None else 1
        )  # the paper's root is random
        assert torch.equal(edges[row, start:length, :length], own_edges[0, start:])
        assert edges[row, length:].eq(0).all(), "padding sends nothing"
        torch.testing.assert_close(values[row, :length], own_values[0])


def test_a_value_that_restarts_comes_only_from_the_children() -> None:
    """Of a chain of operators, each round gives the value one level up; the state before does not
    matter."""
    batch = batch_of(("[MAX [MIN [MED 4 7 ] ] ]",))
    for restart in (True, False):
        torch.manual_seed(0)
        settings = replace(VARIANTS["given"], restart=restart, parents="operators", earlier=True)
        model = ListOps().model(settings).eval()
        assert isinstance(model, LatentTree)
        runs = [
            model.run(batch["tokens"], batch["length"], batch["parents"], rounds)[1]
            for rounds in (5, 6, 9)
        ]
        settled = all(torch.equal(runs[0], run) for run in runs)
        assert settled == restart


def test_the_probe_sees_every_round() -> None:
    model = tree_model("counters")
    batch = batch_of(TEXTS)
    report = dc.probe(model, lambda: ListOps().loss(model, inputs_of(batch)).sum())
    names = [row.name for row in report.readings]
    rounds = [f"round {k}" for k in range(1, 5)]
    assert [name for name in names if name.startswith(("emb", "round"))] == ["embedding", *rounds]
    assert names.count("value") == 4 and names.count("edges.choice") == 1
    assert all(row.gradient is not None and row.gradient > 0 for row in report.readings)
