"""The straight-through estimator of Bengio et al. (2013) for categorical choices."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .._checks import Dial
from ..functional import gumbel_softmax, one_hot, sample, straight_through
from ..noise import Noise

__all__ = ["straight_through_softmax"]


def straight_through_softmax(
    logits: Float[Tensor, "*batch categories"],
    *,
    tau: Dial,
    beta: Dial,
    mask: Bool[Tensor, "..."] | None = None,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*batch categories"]:
    r"""Forward a sample D of softmax(theta / beta), backward the Jacobian of softmax(theta / tau).

    Unlike straight-through Gumbel-softmax, the gradient does not depend on the noise.
    """
    drawn = sample(logits, beta=beta, mask=mask, noise=noise, generator=generator)
    soft = gumbel_softmax(logits, tau, beta=0.0, mask=mask)
    return straight_through(one_hot(drawn, logits.shape[-1], logits.dtype), soft)
