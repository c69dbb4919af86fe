"""dcgraph: networks with discrete steps in a row, made to train.

Names are imported when they are first used: ``import dcgraph`` by itself does not import torch.
"""

from typing import TYPE_CHECKING

from ._lazy import lazy

if TYPE_CHECKING:
    from . import codebook, distributed, estimators, init, inspect, population, structures
    from ._surrogate import surrogate
    from .codebook import mix
    from .dials import Dials
    from .distributions import OneHotCategorical
    from .functional import argmax, entropy, gumbel_softmax, one_hot, sample, straight_through
    from .inspect import debug, probe, trace, watch
    from .nodes import Categorical, Discrete, named_nodes
    from .noise import gumbel
    from .population import Population
    from .pruning import prune_categories
    from .residual import DropRes, drop_residual
    from .schedules import constant, exponential, linear, piecewise, temp_match

__version__ = "0.1.0"

__all__ = [
    "Categorical",
    "Dials",
    "Discrete",
    "DropRes",
    "OneHotCategorical",
    "Population",
    "argmax",
    "codebook",
    "constant",
    "debug",
    "distributed",
    "drop_residual",
    "entropy",
    "estimators",
    "exponential",
    "gumbel",
    "gumbel_softmax",
    "init",
    "inspect",
    "linear",
    "mix",
    "named_nodes",
    "one_hot",
    "piecewise",
    "population",
    "probe",
    "prune_categories",
    "sample",
    "straight_through",
    "structures",
    "surrogate",
    "temp_match",
    "trace",
    "watch",
]

if not TYPE_CHECKING:  # or a type checker would take any name for one of ours
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "_surrogate": ["surrogate"],
            "codebook": ["mix"],
            "dials": ["Dials"],
            "distributions": ["OneHotCategorical"],
            "functional": [
                "argmax", "entropy", "gumbel_softmax", "one_hot", "sample", "straight_through",
            ],
            "inspect": ["debug", "probe", "trace", "watch"],
            "nodes": ["Categorical", "Discrete", "named_nodes"],
            "noise": ["gumbel"],
            "population": ["Population"],
            "pruning": ["prune_categories"],
            "residual": ["DropRes", "drop_residual"],
            "schedules": ["constant", "exponential", "linear", "piecewise", "temp_match"],
        },
        modules=[
            "codebook", "dials", "distributed", "distributions", "estimators", "frameworks",
            "functional", "init", "inspect", "nodes", "noise", "population", "pruning", "residual",
            "schedules", "structures",
        ],
    )  # fmt: skip
