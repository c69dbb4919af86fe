"""Gapped straight-through (Fan et al., 2022): hard choices that lead, with no noise drawn anew."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .._checks import Dial
from ..noise import Noise
from ._draws import draw

__all__ = ["gapped_straight_through"]


def gapped_straight_through(
    logits: Float[Tensor, "*batch categories"],
    *,
    tau: Dial,
    beta: Dial,
    mask: Bool[Tensor, "..."] | None = None,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
    gap: int | float = 1.0,
) -> Float[Tensor, "*batch categories"]:
    r"""Straight-through at logits that are moved so that the choice leads by a gap.

    Forward D ~ softmax(theta / beta). Backward the Jacobian of softmax(a / tau), where a is theta
    moved by a constant: a of the choice is max theta, and the others are at most
    :math:`\max \theta - \mathrm{gap} \cdot \beta`. As with perturbed logits the choice is the
    largest, but nothing is drawn beside it.
    """
    if not gap >= 0:
        raise ValueError(f"gap={gap}, but the choice is not to lie behind; use a gap >= 0.")
    drawn = draw(logits, tau, beta, mask, noise, generator)
    theta = drawn.theta.detach()
    top = theta.amax(-1, keepdim=True)
    target = torch.where(drawn.hard > 0, top, torch.minimum(theta, top - gap * beta))
    soft = drawn.softmax(tau, drawn.moved(target))
    return drawn.with_gradient_of(soft, logits.dtype)
