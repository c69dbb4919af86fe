"""All models of path queries, small, by the names that settings have for them."""

from __future__ import annotations

from collections.abc import Callable

from dcgraph.experiments.tasks.paths.composing import PathModel, Shape
from dcgraph.experiments.tasks.paths.hopping import DiscreteComplEx
from dcgraph.experiments.tasks.paths.task import BASELINES
from dcgraph.experiments.tasks.paths.transformer import CoKE

MODELS: dict[str, Callable[[Shape], PathModel]] = {
    **BASELINES,
    "coke": lambda shape: CoKE(shape, layers=2, heads=2),
    "discrete": DiscreteComplEx,
}
