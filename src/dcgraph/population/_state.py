"""The state of training: which replicas are alive, their losses, the learning rates of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .. import kernels


@dataclass
class TrainerState:
    """Of all replicas, on their device; changed in place, so that a captured step sees it."""

    step: Int[Tensor, ""]
    alive: Bool[Tensor, " replicas"]
    stopped_at: Int[Tensor, " replicas"]  # the step, or -1
    loss_sum: Float[Tensor, " replicas"]


def initial_state(replicas: int, device: torch.device) -> TrainerState:
    return TrainerState(
        torch.zeros((), dtype=torch.long, device=device),
        torch.ones(replicas, dtype=torch.bool, device=device),
        torch.full((replicas,), -1, device=device),
        torch.zeros(replicas, device=device),
    )


def totals(
    gradients: Sequence[Float[Tensor, "replicas _"]],
) -> Float[Tensor, " replicas"]:
    """The sum of all entries, which shows whether any of them is NaN or infinite."""
    if gradients[0].is_cuda and kernels.available() and not torch.compiler.is_compiling():
        from ..kernels._population import totals as kernel  # imports Triton

        return kernel(gradients)
    return _totals_by_torch(gradients)


def _totals_by_torch(gradients: Sequence[Tensor]) -> Tensor:
    return reduce(torch.add, (gradient.sum(-1) for gradient in gradients))


def advance_(
    state: TrainerState,
    loss: Float[Tensor, " replicas"],
    total: Float[Tensor, " replicas"],
    lr: Float[Tensor, " replicas"],
    flat_steps: Float[Tensor, " replicas"],
    steps: int,
) -> Float[Tensor, " replicas"]:
    """Count a step; the learning rates to take it with.

    A replica whose loss, or the sum of whose gradient, is NaN or infinite stops here: its learning
    rate becomes 0. That of the others falls to 0 at the end of all steps, after the flat ones.
    """
    if state.step.is_cuda and kernels.available() and not torch.compiler.is_compiling():
        from ..kernels._population import advance_ as kernel  # imports Triton

        numbers = state.step, state.alive, state.stopped_at, state.loss_sum
        return kernel(loss, total, lr, flat_steps, *numbers, steps)
    return _advance_by_torch(state, loss, total, lr, flat_steps, steps)


def _advance_by_torch(
    state: TrainerState, loss: Tensor, total: Tensor, lr: Tensor, flat_steps: Tensor, steps: int
) -> Tensor:
    finite = loss.isfinite() & total.isfinite()
    state.stopped_at.copy_(torch.where(state.alive & ~finite, state.step, state.stopped_at))
    state.alive.logical_and_(finite)
    state.loss_sum.add_(torch.where(state.alive, loss, 0.0))
    remaining = (steps - state.step) / (steps - flat_steps).clamp(min=1)
    state.step.add_(1)
    return lr * remaining.clamp(max=1) * state.alive
