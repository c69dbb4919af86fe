"""dcgraph: networks with discrete steps in a row, made to train."""

from . import codebook as mixing
from . import estimators, structures
from ._checks import debug
from ._observe import watch
from .codebook import choose, cross_entropy, log_sum_exp, mix
from .dials import Dials
from .functional import argmax, entropy, gumbel_softmax, one_hot, sample, straight_through
from .inspect._probe import probe
from .inspect._trace import trace
from .nodes import Categorical, Discrete, named_nodes
from .noise import gumbel
from .residual import DropRes, drop_residual
from .schedules import constant, exponential, linear, piecewise, temp_match

__version__ = "0.1.0"

__all__ = [
    "Categorical",
    "Dials",
    "Discrete",
    "DropRes",
    "argmax",
    "choose",
    "constant",
    "cross_entropy",
    "debug",
    "drop_residual",
    "entropy",
    "estimators",
    "exponential",
    "gumbel",
    "gumbel_softmax",
    "linear",
    "log_sum_exp",
    "mix",
    "mixing",
    "named_nodes",
    "one_hot",
    "piecewise",
    "probe",
    "sample",
    "straight_through",
    "structures",
    "temp_match",
    "trace",
    "watch",
]
