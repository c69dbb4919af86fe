"""Sparse mixtures: sparsemax (Martins and Astudillo, 2016) and entmax 1.5 (Peters et al., 2019)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .._checks import Dial, check_rows
from ..noise import Noise, is_zero, standard_noise
from ._draws import masked

__all__ = ["entmax15", "project_entmax15", "project_sparsemax", "sparsemax"]


def sparsemax(
    logits: Float[Tensor, "*batch categories"],
    *,
    tau: Dial,
    beta: Dial,
    mask: Bool[Tensor, "..."] | None = None,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*batch categories"]:
    r"""A mixture of few categories: the projection of (theta + beta G) / tau onto the simplex.

    Most entries are exactly 0, and with a small tau the mixture is one category. ``beta=0.0`` is
    sparsemax(theta / tau), which draws nothing and has no bias and no variance of its own.

    >>> import torch
    >>> sparsemax(torch.tensor([1.0, 0.5, -1.0]), tau=1.0, beta=0.0)
    tensor([0.7500, 0.2500, 0.0000])
    """
    perturbed, dtype = _perturbed(logits, tau, beta, mask, noise, generator)
    return _without_empty(project_sparsemax(perturbed), perturbed).to(dtype)


def entmax15(
    logits: Float[Tensor, "*batch categories"],
    *,
    tau: Dial,
    beta: Dial,
    mask: Bool[Tensor, "..."] | None = None,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*batch categories"]:
    r"""Between softmax and :func:`sparsemax`: entmax of (theta + beta G) / tau with alpha = 1.5.

    >>> import torch
    >>> entmax15(torch.tensor([1.0, 0.5, -1.0]), tau=1.0, beta=0.0)
    tensor([0.6740, 0.3260, 0.0000])
    """
    perturbed, dtype = _perturbed(logits, tau, beta, mask, noise, generator)
    return _without_empty(project_entmax15(perturbed), perturbed).to(dtype)


def project_sparsemax(scores: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    r""":math:`p_j = \max(0, x_j - t)`, with t such that they add up to 1."""
    x = _near_the_top(scores)
    in_order, _ = x.sort(-1, descending=True)
    count = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)
    thresholds = (in_order.cumsum(-1) - 1) / count
    return (x - _last_below(thresholds, in_order)).relu()


def project_entmax15(scores: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    r""":math:`p_j = \max(0, x_j / 2 - t)^2`, with t such that they add up to 1.

    Of the k largest, with mean m and mean square s, it is the smaller solution of
    :math:`k (t^2 - 2 m t + s) = 1`.
    """
    x = _near_the_top(scores) / 2
    in_order, _ = x.sort(-1, descending=True)
    count = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)
    mean = in_order.cumsum(-1) / count
    variance = (in_order.square().cumsum(-1) / count - mean.square()).clamp(min=0.0)
    inside = (1 / count - variance).clamp(min=torch.finfo(x.dtype).tiny)
    thresholds = mean - inside.sqrt()
    return (x - _last_below(thresholds, in_order)).relu().square()


def _near_the_top(scores: Tensor) -> Tensor:
    """Scores from 0 down. Those below -2 have no share; far below it they are all alike."""
    top = scores.amax(-1, keepdim=True)
    return (scores - top.masked_fill(top == -math.inf, 0.0)).clamp(min=-_CUT)


_CUT = 4.0


def _last_below(thresholds: Tensor, in_order: Tensor) -> Tensor:
    """The threshold of as many entries as lie above their own."""
    support = (thresholds < in_order).sum(-1, keepdim=True).clamp(min=1)
    return thresholds.gather(-1, support - 1)


def _without_empty(p: Tensor, perturbed: Tensor) -> Tensor:
    """Zeros where there is nothing to choose from, which eager code on the CPU has refused."""
    return p.masked_fill(perturbed == -math.inf, 0.0)


def _perturbed(
    logits: Tensor,
    tau: Dial,
    beta: Dial,
    mask: Tensor | None,
    noise: Noise | None,
    generator: torch.Generator | None,
) -> tuple[Tensor, torch.dtype]:
    """(theta + beta G) / tau, -inf where masked, and the dtype to hand back."""
    theta = masked(logits, tau, beta, mask, noise)
    check_rows(theta, -1)
    excluded = theta == -math.inf
    perturbed = theta.masked_fill(excluded, 0.0)
    if not is_zero(beta):
        perturbed = perturbed + standard_noise(noise, theta, generator) * beta
    return (perturbed / tau).masked_fill(excluded, -math.inf), logits.dtype
