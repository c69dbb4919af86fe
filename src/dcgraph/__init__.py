"""dcgraph: networks with discrete steps in a row, made to train."""

from . import estimators, mixing, structures
from .checks import debug
from .dials import Dials
from .functional import argmax, entropy, gumbel_softmax, one_hot, sample, straight_through
from .mixing import choose, cross_entropy, log_sum_exp, mix
from .nodes import Categorical, Discrete, nodes
from .noise import gumbel
from .observe import watch
from .probing import probe
from .residual import DropRes, drop_residual
from .schedules import constant, exponential, linear, piecewise, temp_match
from .tracing import trace

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
    "nodes",
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
