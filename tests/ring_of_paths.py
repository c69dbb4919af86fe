"""A small graph to train on: twelve entities on a circle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from dcgraph.experiments.engine import Outcome, train
from dcgraph.experiments.tasks.paths.settings import SMALL, PathSettings
from dcgraph.experiments.tasks.paths.task import Paths
from small_graphs import write_ring

ENTITIES = 12
STEPS = {"next": 1, "skip": 5}
"""One relation leads one on, the other five."""


def write_circle(folder: Path) -> Path:
    write_ring(folder, ENTITIES, STEPS)
    return folder


def settings_for(ring: Path, **changes: Any) -> PathSettings:
    base = replace(
        SMALL, graph=str(ring), dim=8, batch=24, epochs=150, lr=0.02, evaluate_every=30,
        gamma=0.02, alpha_step=0.01, subject_dropout=0.0, object_dropout=0.0, relation_dropout=0.0,
    )  # fmt: skip
    return replace(base, **changes)


def train_on(ring: Path) -> tuple[Paths, Outcome]:
    """Two replicas, which learn it."""
    task = Paths()
    replicas = [settings_for(ring, seed=seed) for seed in (0, 1)]
    return task, train(task, replicas, task.data(replicas[0]))
