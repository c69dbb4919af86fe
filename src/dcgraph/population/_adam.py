"""Adam over the rows of a matrix, one learning rate per row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .. import kernels

Gradients = Sequence[tuple[slice, Tensor]]
"""Of columns of a matrix of weights, [replicas, columns]."""

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
    gradients: Gradients,
    moments: Moments,
    lr: Float[Tensor, " replicas"],
    step: Int[Tensor, ""],
) -> None:
    """One step of Adam (Kingma and Ba, 2015), in place; ``step`` counts from 1 and is a tensor.

    Gradients are given for some columns; no others move. A row whose learning rate
    is 0 keeps its weights, whatever its gradient. torch's own takes one learning rate for a whole
    tensor.
    """
    if torch.compiler.is_compiling():
        _all_rows(weights, gradients, moments, lr, step)
    elif weights.is_cpu:
        _row_by_row(weights, gradients, moments, lr, step)
    elif kernels.available():
        _by_kernels(weights, gradients, moments, lr, step)
    else:
        _all_rows(weights, gradients, moments, lr, step)


def _row_by_row(
    weights: Tensor, gradients: Gradients, moments: Moments, lr: Tensor, step: Tensor
) -> None:
    """By what torch.optim.Adam(fused=True) calls: one pass over memory, a fifth of the time."""
    steps = [step.to(weights.dtype)] * len(gradients)
    for row, own_lr in enumerate(lr):
        if own_lr == 0:
            continue
        torch._fused_adam_(
            [weights[row, columns] for columns, _ in gradients],
            [gradient[row] for _, gradient in gradients],
            [moments.first[row, columns] for columns, _ in gradients],
            [moments.second[row, columns] for columns, _ in gradients],
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


def _by_kernels(
    weights: Tensor, gradients: Gradients, moments: Moments, lr: Tensor, step: Tensor
) -> None:
    from ..kernels import _population as kernel  # imports Triton

    sizes = kernel.corrected(lr, step, (_BETA1, _BETA2), _EPSILON)
    shares = 1 - _BETA1, 1 - _BETA2
    for columns, gradient in gradients:
        first, second = moments.first[:, columns], moments.second[:, columns]
        kernel.adam_(weights[:, columns], gradient, first, second, *sizes, shares)


def _all_rows(
    weights: Tensor, gradients: Gradients, moments: Moments, lr: Tensor, step: Tensor
) -> None:
    size, smallest = _corrected(lr, step)
    for columns, gradient in gradients:
        own = torch.where(lr.unsqueeze(-1) == 0, 0.0, gradient)
        first, second = moments.first[:, columns], moments.second[:, columns]
        first.lerp_(own, 1 - _BETA1)
        second.mul_(_BETA2).addcmul_(own, own, value=1 - _BETA2)
        root = second.sqrt().add_(smallest)
        weights[:, columns].sub_(first.div(root).mul_(size.unsqueeze(-1)))


def _corrected(lr: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    r"""The learning rate and epsilon, with both bias corrections folded into them:
    :math:`\eta \sqrt{1 - \beta_2^t} / (1 - \beta_1^t)` and :math:`\epsilon \sqrt{1 - \beta_2^t}`.
    """
    t = step.to(lr.dtype)
    of_first, of_second = (-torch.expm1(t * math.log(beta)) for beta in (_BETA1, _BETA2))
    correction = of_second.sqrt()
    return lr * correction / of_first, _EPSILON * correction
