"""Adam over the rows of a matrix, one learning rate per row."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .. import kernels

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


@dataclass
class Moments:
    """Running means of the gradient and of its square."""

    first: Float[Tensor, "replicas parameters"]
    second: Float[Tensor, "replicas parameters"]


def moments_like(weights: Float[Tensor, "replicas parameters"]) -> Moments:
    return Moments(torch.zeros_like(weights), torch.zeros_like(weights))


def adam_(
    weights: Float[Tensor, "replicas parameters"],
    gradient: Float[Tensor, "replicas parameters"],
    moments: Moments,
    lr: Float[Tensor, " replicas"],
    step: Int[Tensor, ""],
) -> None:
    """One step of Adam (Kingma and Ba, 2015), in place; ``step`` counts from 1 and is a tensor.

    A row whose learning rate is 0 keeps its weights, whatever its gradient. torch's own takes one
    learning rate for a whole tensor.
    """
    if torch.compiler.is_compiling():
        _all_rows(weights, gradient, moments, lr, step)
    elif weights.is_cpu:
        _row_by_row(weights, gradient, moments, lr, step)
    elif kernels.available():
        _in_one_kernel(weights, gradient, moments, lr, step)
    else:
        _all_rows(weights, gradient, moments, lr, step)


def _row_by_row(
    weights: Tensor, gradient: Tensor, moments: Moments, lr: Tensor, step: Tensor
) -> None:
    """By what torch.optim.Adam(fused=True) calls: one pass over memory, a fifth of the time."""
    steps = [step.to(weights.dtype)]
    rows = zip(weights, gradient, moments.first, moments.second, lr, strict=True)
    for row, own_gradient, first, second, own_lr in rows:
        if own_lr == 0:
            continue
        torch._fused_adam_(
            [row],
            [own_gradient],
            [first],
            [second],
            [],
            steps,
            lr=own_lr,
            beta1=_BETA1,
            beta2=_BETA2,
            weight_decay=0.0,
            eps=_EPSILON,
            amsgrad=False,
            maximize=False,
        )


def _in_one_kernel(
    weights: Tensor, gradient: Tensor, moments: Moments, lr: Tensor, step: Tensor
) -> None:
    from ..kernels import adam as kernel

    sizes = kernel.corrected(lr, step, (_BETA1, _BETA2), _EPSILON)
    shares = 1 - _BETA1, 1 - _BETA2
    kernel.adam_(weights, gradient, moments.first, moments.second, *sizes, shares)


def _all_rows(
    weights: Tensor, gradient: Tensor, moments: Moments, lr: Tensor, step: Tensor
) -> None:
    size, smallest = _corrected(lr, step)
    gradient = torch.where(lr.unsqueeze(-1) == 0, 0.0, gradient)
    moments.first.lerp_(gradient, 1 - _BETA1)
    moments.second.mul_(_BETA2).addcmul_(gradient, gradient, value=1 - _BETA2)
    root = moments.second.sqrt().add_(smallest)
    weights.sub_(moments.first.div(root).mul_(size.unsqueeze(-1)))


def _corrected(lr: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    r"""The learning rate and epsilon, with both bias corrections folded into them:
    :math:`\eta \sqrt{1 - \beta_2^t} / (1 - \beta_1^t)` and :math:`\epsilon \sqrt{1 - \beta_2^t}`.
    """
    t = step.to(lr.dtype)
    of_first, of_second = (-torch.expm1(t * math.log(beta)) for beta in (_BETA1, _BETA2))
    correction = of_second.sqrt()
    return lr * correction / of_first, _EPSILON * correction
