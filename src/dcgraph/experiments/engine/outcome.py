"""What training finds out: its looks at all replicas, and what came of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ...population import Population
from .settings import Settings


@dataclass(frozen=True)
class Evaluation:
    """One look at all replicas: metrics by name, one number per replica, None where it stopped."""

    step: int
    epoch: float
    split: str
    loss: list[float | None]
    metrics: dict[str, list[float | None]]
    probes: list[list[dict[str, Any]] | None] = field(default_factory=list)
    """What the probe read of each replica, node by node; empty where it did not look."""


@dataclass
class Outcome:
    """What came of a population."""

    replicas: list[Settings]
    population: Population
    best_weights: Tensor
    best_step: list[int]
    stopped_at: list[int | None]
    curve: list[Evaluation]
    test: list[dict[str, float | None]]
    seconds: float
    steps: int
    chosen_by: str  # the metric by which the best weights are the best

    def score(self, index: int) -> float:
        """What the best weights of a replica were chosen by; -inf if it was never evaluated."""
        looks = (look.metrics[self.chosen_by][index] for look in self.curve)
        return max((value for value in looks if value is not None), default=-math.inf)

    def model(self, index: int) -> nn.Module:
        """The best model of one replica, as an ordinary module in eval mode."""
        return self.population.replica(index, self.best_weights).eval()
