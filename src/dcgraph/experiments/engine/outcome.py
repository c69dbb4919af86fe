"""What training finds out: its evaluations of all replicas, and what came of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

from torch import Tensor, nn

from ...population._rows import RowPopulation
from .metrics import Metric, Metrics, from_fields, to_fields
from .ranks import joined
from .records import Readings, checked_readings
from .settings import Settings


@dataclass(frozen=True)
class Evaluation:
    """An evaluation of all replicas: one number per replica, None where it has stopped."""

    step: int
    loss: list[float | None]  # of training, since the last evaluation
    metrics: dict[Metric, list[float | None]]
    probes: list[Readings | None] = field(default_factory=list)  # empty where the probe was not run

    def check(self, replicas: int) -> None:
        """That it has a number, or None, for every replica; for one that was read from a file."""
        values = [self.loss, *self.metrics.values()]
        if type(self.step) is not int or any(len(some) != replicas for some in values):
            raise ValueError(f"an evaluation of {replicas} replicas has other numbers")
        if any(type(one) not in (float, NoneType) for some in values for one in some):
            raise ValueError("an evaluation has what is no number")
        if len(self.probes) not in (0, replicas):
            raise ValueError("an evaluation has probes of other replicas")
        for readings in self.probes:
            if readings is not None:
                checked_readings(readings)

    def part(self, where: slice) -> Evaluation:
        """Of some of the replicas."""
        metrics = {metric: values[where] for metric, values in self.metrics.items()}
        return Evaluation(self.step, self.loss[where], metrics, self.probes[where])

    @staticmethod
    def joined(parts: Sequence[Evaluation]) -> Evaluation:
        """Of the replicas of several ranks."""
        metrics = {
            metric: joined([part.metrics[metric] for part in parts]) for metric in parts[0].metrics
        }
        loss, probes = joined([part.loss for part in parts]), joined([p.probes for p in parts])
        return Evaluation(parts[0].step, loss, metrics, probes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a checkpoint."""
        metrics = [{"metric": to_fields(m), "values": v} for m, v in self.metrics.items()]
        return {**vars(self), "metrics": metrics}

    @staticmethod
    def from_dict(stored: dict[str, Any]) -> Evaluation:
        metrics = {from_fields(one["metric"]): one["values"] for one in stored["metrics"]}
        return Evaluation(**{**stored, "metrics": metrics})


@dataclass
class Outcome:
    """What came of a population."""

    replicas: list[Settings]
    population: RowPopulation
    best_weights: Tensor
    best_step: list[int]
    stopped_at: list[int | None]
    curve: list[Evaluation]
    calibration: list[dict[str, float]]
    metrics: list[Metrics]
    seconds: float
    steps: int
    hardware: str
    selected_by: Metric  # the metric by which the best weights are the best

    def score(self, index: int) -> float:
        """What the best weights of a replica were selected by; -inf if it was never evaluated."""
        values = (evaluation.metrics[self.selected_by][index] for evaluation in self.curve)
        return max((value for value in values if value is not None), default=-math.inf)

    def model(self, index: int) -> nn.Module:
        """The best model of one replica, as an ordinary module in eval mode."""
        return self.population.replica(
            index, parameters=self.population.slices(self.best_weights)
        ).eval()
