"""All models of path queries, small, by the names that settings have for them."""

from __future__ import annotations

from collections.abc import Callable

from dcgraph.experiments.tasks.paths.baselines import BASELINES, CoKE
from dcgraph.experiments.tasks.paths.model import DiscreteComplEx, PathModel, Shape

MODELS: dict[str, Callable[[Shape], PathModel]] = {
    **BASELINES,
    "coke": lambda shape: CoKE(shape, layers=2, heads=2),
    "discrete": DiscreteComplEx,
}
