"""ListOps as a task: every variant trains, and is measured rightly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.experiments.engine import Batch, Data, train
from dcgraph.experiments.engine.jobs import jobs_of
from dcgraph.experiments.engine.metrics import Metric
from dcgraph.experiments.engine.records import read_record
from dcgraph.experiments.engine.runs import perform
from dcgraph.experiments.engine.step import set_decode
from dcgraph.experiments.engine.tables import Row, Run, Table, record_of
from dcgraph.experiments.tasks.listops.baselines import StateTree
from dcgraph.experiments.tasks.listops.data import sets
from dcgraph.experiments.tasks.listops.data.expressions import (
    OPERATORS,
    parse,
)
from dcgraph.experiments.tasks.listops.data.generator import distinct
from dcgraph.experiments.tasks.listops.data.sets import distribution_of, tables_of
from dcgraph.experiments.tasks.listops.decoding import TreeDecoder, measure
from dcgraph.experiments.tasks.listops.model.latent_tree import LatentTree
from dcgraph.experiments.tasks.listops.settings import BEST, PAPER, ListOpsSettings
from dcgraph.experiments.tasks.listops.task import ListOps
from listops_models import (
    ABLE,
    LEARNED,
    TEXTS,
    VARIANTS,
    able_model,
    batch_of,
    inputs_of,
    some_expressions,
    tree_model,
)
from listops_models import small_data as expressions_as_data


@pytest.mark.parametrize("name", ["paper", "counters", "arborescence", "states", "lstm"])
def test_padding_changes_no_gradient(name: str) -> None:
    """In training mode, with nothing random left: beta = 0, alpha = 1, no dropout."""
    settings = replace(VARIANTS[name], dropout=0.0)
    torch.manual_seed(0)
    model = ListOps().model(settings)
    if name != "lstm":
        dc.Dials(tau=1.0, beta=0.0, alpha=1.0).attach(model)
    gradients = []
    for width in (10, 15):
        (table,) = tables_of([parse("[MIN 1 [MAX 2 8 ] 4 4 ]")])
        padded = {
            key: nn.functional.pad(value, (0, width - 12), value=-1 if key != "tokens" else 0)
            if value.ndim > 1
            else value
            for key, value in table.items()
        }
        loss = ListOps().loss(model, inputs_of(padded)).sum()
        gradients.append(torch.autograd.grad(loss, list(model.parameters()), allow_unused=True))
    for one, other in zip(*gradients, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)


@pytest.fixture(scope="module")
def small_data() -> Data:
    """A few short expressions in tables of two widths."""
    drawn = distinct(distribution_of(1), 60, Random(3)) + distinct(
        distribution_of(2), 60, Random(4)
    )
    tables = tables_of(drawn)
    assert [t["tokens"].shape[1] for t in tables[:2]] == [7, 12]
    return Data(
        dict.fromkeys(("train", "validation", "test"), tables[:2]), "small", to_batch=sets.to_batch
    )


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_trains(name: str, small_data: Data) -> None:
    settings = replace(VARIANTS[name], epochs=1, batch=20, schedule_steps=2, lr=1e-3)
    replicas = [replace(settings, seed=seed) for seed in range(2)]
    outcome = train(ListOps(), replicas, small_data)
    assert outcome.stopped_at == [None, None]
    # All weights have moved, the encoder's among them.
    torch.manual_seed(0)
    start = dict(ListOps().model(settings).named_parameters())
    end = dict(outcome.population.replica(0).named_parameters())
    assert set(end) == set(start)
    for part, value in end.items():
        assert not torch.equal(value, start[part]), part


def test_measures_are_ratios_over_all_edges_and_operators(small_data: Data) -> None:
    model = tree_model("given").eval()
    with torch.no_grad():  # every value is 3
        for parameter in model.value.parameters():
            parameter.zero_()
        assert isinstance(model.value.g, nn.Sequential)
        first, _, last = model.value.g
        assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
        first.bias.fill_(1.0)
        last.weight[3].fill_(1.0)
    found = measure(model, small_data, "test", rounds=7)
    assert found["edge precision"] == 1.0
    labels = torch.cat([table["label"] for table in small_data.tables("test")])
    assert found["task accuracy"] == pytest.approx(float((labels == 3).float().mean()))
    operators = torch.tensor(list(OPERATORS))
    inner = [
        table["values"][(table["parents"] >= 0) & torch.isin(table["tokens"], operators)]
        for table in small_data.tables("test")
    ]
    assert found["intermediate accuracy"] == pytest.approx(
        float((torch.cat(inner) == 3).float().mean())
    )


def other_trees(batch: Batch) -> dict[str, Tensor]:
    """The gold parents, and others: all on the root, on the token before, on random ones, none."""
    parents = batch["parents"]
    place = torch.arange(parents.shape[1]).expand(parents.shape)
    inside = (parents >= 0).long()
    return {
        "gold": parents,
        "root": parents * (1 - inside),
        "before": torch.where(parents >= 0, place - 1, -1),
        "random": torch.where(parents >= 0, torch.randint_like(parents, 4), -1),
        "none": torch.full_like(parents, -1),
    }


@pytest.mark.parametrize("name", LEARNED)
def test_a_learned_tree_owes_nothing_to_the_gold_one(name: str) -> None:
    """Loss, all gradients and metrics are equal to the bit whatever the gold parents are."""
    torch.manual_seed(0)
    model = ListOps().model(VARIANTS[name])
    batch = inputs_of(batch_of(TEXTS))
    found = {}
    for tree, parents in other_trees(batch).items():
        own = {**batch, "parents": parents}
        torch.manual_seed(1)
        loss = ListOps().loss(model.train(), own)
        gradients = torch.autograd.grad(loss.sum(), list(model.parameters()), allow_unused=True)
        measured = []
        for decoder in ("argmax", "sample"):
            set_decode(model.eval(), decoder)
            torch.manual_seed(2)
            measured.append(ListOps().metrics(model, own)["accuracy"])
            measured.append(model(own["tokens"], own["lengths"], parents).detach())
        found[tree] = [loss.detach(), *(g for g in gradients if g is not None), *measured]
    for tree, values in found.items():
        for value, expected in zip(values, found["gold"], strict=True):
            assert torch.equal(value, expected), f"the loss depends on the gold tree: {tree}"


@pytest.mark.parametrize("name", [name for name in LEARNED if VARIANTS[name].model != "lstm"])
def test_the_edges_of_a_learned_tree_owe_nothing_to_the_gold_one(name: str) -> None:
    """Relaxed and hard edges, and their gradients with respect to the encoder, to the bit."""
    torch.manual_seed(0)
    model = ListOps().model(VARIANTS[name])
    assert isinstance(model, LatentTree | StateTree)
    batch = inputs_of(batch_of(TEXTS))
    weights = torch.randn(len(TEXTS), *[batch["tokens"].shape[1]] * 2)
    found = {}
    for tree, parents in other_trees(batch).items():
        given = batch["tokens"], batch["lengths"], parents
        torch.manual_seed(1)
        relaxed = model.train().edges(*given)
        gradients = torch.autograd.grad((weights * relaxed).sum(), list(model.edges.parameters()))
        assert any(gradient.any() for gradient in gradients), "the test would say little"
        values = [relaxed.detach(), *gradients]
        model.eval()
        for decoder in ("argmax", "sample"):
            set_decode(model, decoder)
            torch.manual_seed(2)
            values += [value.detach() for value in model.run(*given)]
            if isinstance(model, LatentTree):
                torch.manual_seed(2)
                decoded = TreeDecoder(model)(*given)
                values += [decoded.parents, decoded.values]
        found[tree] = values
    for tree, values in found.items():
        for value, expected in zip(values, found["gold"], strict=True):
            assert torch.equal(value, expected), f"the edges depend on the gold tree: {tree}"


def test_a_tree_that_is_given_is_used() -> None:
    """The tests above can fail."""
    torch.manual_seed(0)
    model = ListOps().model(VARIANTS["given"]).eval()
    batch = inputs_of(batch_of(TEXTS))
    losses = [
        ListOps().loss(model, {**batch, "parents": parents})
        for parents in other_trees(batch).values()
    ]
    assert not any(torch.equal(losses[0], other) for other in losses[1:])


@pytest.mark.parametrize("name", ["counters", "rule"])
def test_without_epochs_the_initial_weights_are_tested(
    name: str, small_data: Data, tmp_path: Path
) -> None:
    """So that untrained models and rules without weights have records as all others."""
    rule = replace(PAPER, model="nearest_operator", epochs=0, batch=20)
    settings = rule if name == "rule" else replace(VARIANTS[name], epochs=0, batch=20)
    run = Run(name, settings, seeds=1 if name == "rule" else 2)
    table = Table("untrained", "listops", "Untrained.", (Row(name, (run,)),), ())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ListOps, "data", lambda *_: small_data)
        list(perform(ListOps(), jobs_of(table, table.rows[0], tmp_path), tmp_path / "work"))
    for seed in range(run.seeds):
        record = read_record(record_of(run, seed, "listops", tmp_path))
        torch.manual_seed(seed)
        model = ListOps().model(settings).eval()
        found = measure(model, small_data, "test", rounds=5)
        for metric, share in found.items():
            assert record.value(Metric(metric)) == pytest.approx(share, rel=1e-5)
        assert (record.steps, record.selection.step, record.curve.step) == (0, 0, [])
        assert record.parameters == sum(p.numel() for p in model.parameters())


def test_final_metrics_are_of_all_tests_with_the_rounds_they_ask_for() -> None:
    chains = [parse("[MAX 0 " * 8 + f"{digit} " + "] " * 8) for digit in range(1, 10)]
    others = {"d8": chains, "critical-d2": some_expressions(5)}
    data, model = expressions_as_data(**others), able_model()
    found = ListOps().final_metrics(model, ABLE, data, {})
    for name, rounds in {"test": 5, "d8": 8, "critical-d2": 5}.items():
        for metric, share in measure(model, data, name, rounds).items():
            assert found[Metric(metric, name, "argmax")] == share
    fewer = {Metric(metric, "d8"): v for metric, v in measure(model, data, "d8", 5).items()}
    assert any(found[metric] != value for metric, value in fewer.items()), "the test can fail"
    assert {metric.set for metric in found} == {"test", "d8", "critical-d2"}
    assert {metric.decoder for metric in found} == {"argmax", "sample"}


@pytest.mark.parametrize("settings", [PAPER, BEST])
def test_weights_are_selected_by_the_decoder_of_the_settings(settings: ListOpsSettings) -> None:
    assert ListOps().execution(settings).monitor_decoder == settings.decode
    assert {PAPER.decode, BEST.decode} == {"sample", "argmax"}
