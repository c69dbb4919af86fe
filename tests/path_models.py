"""All models of path queries, small, by the names that settings have for them."""

from __future__ import annotations

from collections.abc import Callable

from dcgraph.tasks.paths.composing import Bilinear, ComplEx, DistMult, PathModel, Shape, TransE
from dcgraph.tasks.paths.hopping import DiscreteComplEx
from dcgraph.tasks.paths.recurrent import ROP, PathRNN
from dcgraph.tasks.paths.transformer import CoKE

MODELS: dict[str, Callable[[Shape], PathModel]] = {
    "complex": ComplEx,
    "distmult": DistMult,
    "bilinear": Bilinear,
    "transe": TransE,
    "rnn": PathRNN,
    "rop": ROP,
    "coke": lambda shape: CoKE(shape, layers=2, heads=2),
    "discrete": DiscreteComplEx,
}
