"""Gumbel-Rao (Paulus et al., 2021): straight-through Gumbel-softmax with less variance."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .._checks import Dial
from ..noise import Noise
from ._draws import SAMPLES, check_gumbel, check_samples, draw

__all__ = ["gumbel_rao"]


def gumbel_rao(
    logits: Float[Tensor, "*batch categories"],
    *,
    tau: Dial,
    beta: Dial,
    mask: Bool[Tensor, "..."] | None = None,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
    samples: int = SAMPLES,
) -> Float[Tensor, "*batch categories"]:
    r"""Straight-through Gumbel-softmax, averaged over the noise that makes the same choice.

    Forward D ~ softmax(theta / beta). Backward the mean of the Jacobians of
    :math:`z_k = \mathrm{softmax}((\theta + \beta G_k) / \tau)` over noise :math:`G_k` drawn on the
    condition that D is chosen. The expectation is that of straight-through Gumbel-softmax, the
    variance is less. It costs ``samples`` rows of memory and time, and no further call of the
    network.
    """
    check_gumbel("gumbel_rao", noise)
    check_samples(samples)
    drawn = draw(logits, tau, beta, mask, noise, generator)
    soft = drawn.rao(drawn.log_p(), samples, generator)
    return drawn.with_gradient_of(soft, logits.dtype)
