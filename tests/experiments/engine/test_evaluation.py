"""Evaluations: what is measured when and how, by what weights are selected, what is probed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.experiments.engine import (
    Batch,
    Data,
    Execution,
    Metric,
    Metrics,
    evaluation,
    train,
)
from dcgraph.experiments.engine.metrics import Decoder
from dcgraph.experiments.engine.runs import make_records
from parity import ACCURACY, DATA, QUICK, TASK, THREE, Parity, ParitySettings

DECODERS: tuple[Decoder, ...] = ("argmax", "sample")


def test_looking_inside_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = train(TASK, THREE, DATA)
    monkeypatch.setattr(evaluation, "_PROBES", 3)
    seldom = train(TASK, THREE, DATA)
    assert torch.equal(looked.population.weights, seldom.population.weights)
    assert [bool(look.probes) for look in seldom.curve] == [True, True, False, True]
    first, second, third = looked.curve[-1].probes
    assert first and second and third and first != second
    assert [(r["name"], r["call"]) for r in third] == [("symbol", 0), ("symbol", 1), ("symbol", 2)]
    assert sum(third[0]["by_category"]["weight"]) == pytest.approx(1, abs=0.01)


def test_a_loss_that_cannot_be_probed_is_no_reason_to_stop() -> None:
    def to_batch(constants: Batch, rows: Batch, training: bool) -> Batch:
        return {**rows, "turned": rows["bits"]} if training else rows

    class Augmented(Parity):
        def loss(self, model: nn.Module, batch: Batch) -> Tensor:
            return super().loss(model, {**batch, "bits": batch["turned"]})

    with pytest.warns(UserWarning, match="will not be probed, .* KeyError: 'turned'"):
        outcome = train(Augmented(), THREE, replace(DATA, to_batch=to_batch))
    assert len(outcome.curve) == 4 and not any(look.probes for look in outcome.curve)


def test_the_probe_looks_at_long_examples_all_over_their_table() -> None:
    tables = [
        {"x": torch.arange(900.0).view(900, 1)},
        {"x": torch.arange(600.0).view(600, 1).expand(600, 7)},
        {"x": torch.zeros(20, 50)},
    ]
    rows = evaluation.some_rows(Data({"train": tables, "test": tables}, "x"), "test", 256)["x"]
    assert rows.shape == (256, 7) and rows[:, 0].tolist() == list(range(0, 512, 2))
    few = evaluation.some_rows(Data({"train": tables[2:], "test": tables[2:]}, "x"), "test", 256)[
        "x"
    ]
    assert few.shape == (20, 50)


def test_weights_are_chosen_by_the_decoding_that_the_task_names(tmp_path: Path) -> None:
    class Sampled(Parity):
        def execution(self, settings: ParitySettings) -> Execution:
            return Execution(monitor_decoder="sample")

    outcome = train(Sampled(), THREE, DATA)
    sampled = replace(ACCURACY, decoder="sample")
    assert outcome.selected_by == sampled
    for index in range(len(THREE)):
        values = [look.metrics[sampled][index] or 0.0 for look in outcome.curve]
        assert outcome.score(index) == max(values)
        assert values[[4, 8, 12, 16].index(outcome.best_step[index])] == max(values)
    assert make_records(Sampled(), outcome, DATA)[0].selection.metric == sampled


class Undecided(nn.Module):
    """Two categories with equal probabilities: argmax takes the first, a sample either."""

    def __init__(self) -> None:
        super().__init__()
        self.choice, self.weight = dc.Categorical(), nn.Parameter(torch.zeros(1))

    def forward(self, bits: Tensor) -> Tensor:
        z: Tensor = self.choice(0 * self.weight * bits[:, :2])
        return z


class Coin(Parity):
    def model(self, settings: ParitySettings) -> nn.Module:
        return Undecided()

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"accuracy": model(batch["bits"])[:, 0]}


def test_the_nodes_decode_as_an_evaluation_asks() -> None:
    outcome = train(Coin(), [QUICK], DATA)
    found = [outcome.curve[0].metrics[replace(ACCURACY, decoder=d)][0] for d in DECODERS]
    assert found[0] == 1 and found[1] is not None and 0 < found[1] < 1


class Negative(Parity):
    """A monitor that is always far below 0."""

    def execution(self, settings: ParitySettings) -> Execution:
        return Execution(monitor="score")

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"score": -10 - self.loss(model, batch)}


def test_a_monitor_may_be_negative_and_must_exist() -> None:
    outcome = train(Negative(), THREE, DATA)
    assert all(step > 0 for step in outcome.best_step)

    class Lost(Parity):
        def execution(self, settings: ParitySettings) -> Execution:
            return Execution(monitor="score")

    with pytest.raises(ValueError, match="the monitor 'score' is not among the metrics"):
        train(Lost(), THREE, DATA)


def test_precision_monitor_and_size_of_evaluations_are_the_tasks() -> None:
    precisions, sizes = set(), set()

    class Asked(Parity):
        def execution(self, settings: ParitySettings) -> Execution:
            return Execution(monitor="error", precision="high", evaluated_at_once=14)

        def loss(self, model: nn.Module, batch: Batch) -> Tensor:
            precisions.add(torch.get_float32_matmul_precision())
            return super().loss(model, batch)

        def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
            assert torch.get_float32_matmul_precision() == "highest"
            sizes.add(len(batch["parity"]))
            return {"error": 1 - super().metrics(model, batch)["accuracy"]}

    outcome = train(Asked(), [QUICK, replace(QUICK, seed=1)], DATA)
    assert outcome.selected_by == Metric("error", "validation")
    assert "high" in precisions and sizes == {7, 2}


def test_calibration_comes_before_the_test_and_sees_only_the_validation_split() -> None:
    events: list[str] = []
    tested = torch.equal

    class Calibrated(Parity):
        def calibrate(
            self, model: nn.Module, settings: ParitySettings, data: Data
        ) -> dict[str, float]:
            events.append("calibrated")
            assert set(data.splits) == {"validation"}
            return {"offset": float(settings.seed)}

        def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
            if tested(batch["bits"], DATA.table("test")["bits"]):
                events.append("tested")
            return super().metrics(model, batch)

        def final_metrics(
            self,
            model: nn.Module,
            settings: ParitySettings,
            data: Data,
            calibration: Mapping[str, float],
        ) -> Metrics:
            events.append("measured")
            assert not model.training and "test" in data.splits
            return {Metric("offset", decoder=None): calibration.get("offset")}

    outcome = train(Calibrated(), THREE, DATA)
    assert events == [*["calibrated"] * 3, *["tested"] * 2, *["measured"] * 3]
    assert outcome.calibration == [{"offset": 0.0}, {"offset": 1.0}, {"offset": 2.0}]
    for record, seed in zip(make_records(TASK, outcome, DATA), range(3), strict=True):
        assert record.value(Metric("offset", decoder=None)) == record.calibration["offset"] == seed
    events.clear()
    without = train(Calibrated(), THREE, DATA.only("train", "test"))
    assert "calibrated" not in events and events[-3:] == ["measured"] * 3
    assert without.calibration == [{}, {}, {}]
