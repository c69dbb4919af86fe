"""ListOps as a task: every variant trains, and is measured rightly."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import torch
from torch import nn

import dcgraph as dc
from dcgraph.experiments.engine import Data, train
from dcgraph.experiments.tasks.listops.data import sets
from dcgraph.experiments.tasks.listops.data.expressions import (
    OPERATORS,
    parse,
)
from dcgraph.experiments.tasks.listops.data.generator import distinct
from dcgraph.experiments.tasks.listops.data.sets import distribution_of, tables_of
from dcgraph.experiments.tasks.listops.decoding import measure
from dcgraph.experiments.tasks.listops.task import ListOps
from listops_models import VARIANTS, inputs_of, tree_model


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
