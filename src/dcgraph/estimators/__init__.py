"""Gradient estimators of a categorical choice, chosen by name.

There are three kinds. Most turn logits into a (relaxed or hard) one-hot row through which gradients
flow; all of these have one signature, :class:`Estimator`, and are in ``ESTIMATORS``; a new one is a
function and an entry there. Those in ``LOSS_ESTIMATORS`` need the loss, and work with
:func:`dcgraph.surrogate`. Those in ``VECTOR_ESTIMATORS`` send gradients from the chosen row of a
codebook to the vector that chose it, and work in a :class:`dcgraph.Discrete` only.

A hard forward pass draws from softmax(theta / beta), and the backward pass has the temperature tau:
two temperatures, which may differ. Gradients have the unit 1 / tau; where beta = tau, as at the end
of TempMatch, they estimate the gradient of the expected loss.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from .._arguments import check_choice
from .._checks import Dial
from ..functional import gumbel_softmax
from ..noise import Noise
from ._gapped import gapped_straight_through
from ._gumbel_rao import gumbel_rao
from ._imle import adaptive_imle, imle
from ._loss import (
    LOSS_ESTIMATORS,
    ControlVariate,
    LossEstimator,
    enumeration,
    rebar,
    reinforce,
    relax,
    topk_sparsemax,
)
from ._reinmax import reinmax, reinmax_cv, reinmax_rao, zgr
from ._sparse import entmax15, sparsemax
from ._straight_through import straight_through_softmax

__all__ = [
    "ESTIMATORS",
    "LOSS_ESTIMATORS",
    "VECTOR_ESTIMATORS",
    "ControlVariate",
    "Estimator",
    "LossEstimator",
    "adaptive_imle",
    "check_estimator",
    "entmax15",
    "enumeration",
    "gapped_straight_through",
    "get_estimator",
    "gumbel_rao",
    "imle",
    "rebar",
    "reinforce",
    "reinmax",
    "reinmax_cv",
    "reinmax_rao",
    "relax",
    "sparsemax",
    "straight_through_softmax",
    "topk_sparsemax",
    "zgr",
]


@runtime_checkable  # for the run-time checks of the tests
class Estimator(Protocol):
    """logits [..., K] -> z [..., K], see :func:`dcgraph.gumbel_softmax` for the arguments."""

    def __call__(
        self,
        logits: Tensor,
        *,
        tau: Dial,
        beta: Dial,
        mask: Tensor | None,
        noise: Noise | None,
        generator: torch.Generator | None,
    ) -> Tensor: ...


ESTIMATORS: dict[str, Estimator] = {
    "gumbel_softmax": gumbel_softmax,
    "straight_through_gumbel_softmax": partial(gumbel_softmax, hard=True),
    "straight_through": straight_through_softmax,
    "gumbel_rao": gumbel_rao,
    "gapped_straight_through": gapped_straight_through,
    "zgr": zgr,
    "reinmax": reinmax,
    "reinmax_rao": reinmax_rao,
    "reinmax_cv": reinmax_cv,
    "imle": imle,
    "adaptive_imle": adaptive_imle,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
}

VECTOR_ESTIMATORS = ("rotation",)


def check_estimator(name: str) -> None:
    """An error that lists the names, unless it is one of them."""
    check_choice("estimator", name, (*ESTIMATORS, *LOSS_ESTIMATORS, *VECTOR_ESTIMATORS))


def get_estimator(name: str) -> Estimator:
    """The function of logits of that name, or an error that says what to do instead."""
    check_estimator(name)
    if name in LOSS_ESTIMATORS:
        raise ValueError(
            f"estimator={name!r} needs the loss and is no function of logits; put it into a node, "
            "and compute the loss with dcgraph.surrogate(model, closure)."
        )
    if name in VECTOR_ESTIMATORS:
        raise ValueError(
            f"estimator={name!r} is for vectors and the rows of a codebook, not for logits; use it "
            "in a dcgraph.Discrete with a tied or given codebook."
        )
    return ESTIMATORS[name]
