"""Gradient estimators of a categorical choice, chosen by name.

An estimator turns logits into a (relaxed or hard) one-hot row through which gradients flow. All
have one signature, :class:`Estimator`; a new one is a function and an entry in ``ESTIMATORS``.
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
from .straight_through import straight_through_softmax

__all__ = ["ESTIMATORS", "Estimator", "get_estimator", "straight_through_softmax"]


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
}


def get_estimator(name: str) -> Estimator:
    """The estimator of that name, or an error that lists the names."""
    check_choice("estimator", name, ESTIMATORS)
    return ESTIMATORS[name]
