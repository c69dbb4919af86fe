"""A small graph, and models trained on it, once for all tests of a module."""

from __future__ import annotations

from pathlib import Path

import pytest

from dcgraph.experiments.engine import Outcome
from dcgraph.experiments.tasks.paths.task import Paths
from ring_of_paths import train_on, write_circle


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_circle(tmp_path_factory.mktemp("ring"))


@pytest.fixture(scope="module")
def trained(ring: Path) -> tuple[Paths, Outcome]:
    return train_on(ring)
