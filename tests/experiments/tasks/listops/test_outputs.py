"""Every run of the tables has the model it always had: what it computed is in a file.

The file was written with the code of commit 7e2aeb4: names, shapes and sizes of initial weights,
the loss and its gradients in training, and the answers by argmax and by sampling, of three
expressions. On one machine all is equal to the bit; on others sums may be in another order.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import dcgraph as dc
from dcgraph._checks import unchecked
from dcgraph.experiments.engine.settings import Settings
from dcgraph.experiments.engine.step import set_decode
from dcgraph.experiments.tasks.listops.settings import ListOpsSettings
from dcgraph.experiments.tasks.listops.tables import ABLATION, LISTOPS, MASKS
from dcgraph.experiments.tasks.listops.task import ListOps
from listops_models import TEXTS, batch_of, inputs_of

BEFORE: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "listops_outputs.json").read_text()
)
RUNS = {
    run.name: run.settings
    for table in (LISTOPS, ABLATION, MASKS)
    for row in table.rows
    for run in row.runs
}


def outputs_of(settings: Settings) -> dict[str, Any]:
    assert isinstance(settings, ListOpsSettings)
    batch = inputs_of(batch_of(TEXTS))
    torch.manual_seed(5)
    model = ListOps().model(settings)
    if any(True for _ in dc.named_nodes(model)):
        dc.Dials(**settings.schedules()).attach(model)
    state = model.state_dict()
    torch.manual_seed(7)
    loss = ListOps().loss(model.train(), batch)
    gradients = torch.autograd.grad(loss.sum(), list(model.parameters()), allow_unused=True)
    found: dict[str, Any] = {
        "state": {name: list(value.shape) for name, value in state.items()},
        "initial": [float(value.double().norm()) for value in state.values()],
        "loss": loss.tolist(),
        "gradients": [None if g is None else float(g.double().norm()) for g in gradients],
    }
    for decoder in ("argmax", "sample"):
        set_decode(model.eval(), decoder)
        torch.manual_seed(9)
        with torch.no_grad():
            answers = model(batch["tokens"], batch["lengths"], batch["parents"])
        found[decoder] = answers.tolist()
    return found


@pytest.mark.parametrize("name", BEFORE)
def test_a_run_computes_what_it_did(name: str) -> None:
    with unchecked():  # as the engine does, which draws in another order than a single model
        found = outputs_of(RUNS[name])
    before = BEFORE[name]
    assert found["state"] == before["state"]
    for number in ("initial", "loss", "gradients"):
        assert [value is None for value in found[number]] == [v is None for v in before[number]]
        known = [
            (a, b) for a, b in zip(found[number], before[number], strict=True) if b is not None
        ]
        assert [a for a, _ in known] == pytest.approx([b for _, b in known], rel=1e-4, abs=1e-6)
    for decoder in ("argmax", "sample"):
        expected = torch.tensor(before[decoder])
        torch.testing.assert_close(torch.tensor(found[decoder]), expected, rtol=1e-4, atol=1e-5)


def test_every_run_is_compared() -> None:
    assert set(RUNS) == set(BEFORE)
