"""The step of a population: what it does with a few numbers for each replica, and Adam.

Each is one kernel instead of twenty, and Adam one pass over memory. The reference implementations
are ``population._state._advance_by_torch`` and ``_totals_by_torch``, ``population._adam._all_rows``
and ``_corrected``.
"""

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

_TOTAL_TILE, _PASSES = 2048, 8
_ADAM_TILE = 1024


@triton.jit
def _add_up(values, out, count, tile: tl.constexpr, passes: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([tile], tl.float32)
    for number in tl.static_range(passes):
        at = (tl.program_id(1) * passes + number) * tile + tl.arange(0, tile)
        total += tl.load(values + row * count + at, at < count, 0.0)
    tl.atomic_add(out + row, tl.sum(total, 0))


def totals(gradients: Sequence[Tensor]) -> Tensor:
    """Sums of the rows of all. In what order they add up is left to chance, and so is rounding."""
    out = torch.zeros(len(gradients[0]), device=gradients[0].device)
    with torch.cuda.device_of(out):
        for gradient in gradients:
            rows, count = gradient.shape
            _add_up[rows, triton.cdiv(count, _TOTAL_TILE * _PASSES)](
                gradient.contiguous(), out, count, tile=_TOTAL_TILE, passes=_PASSES
            )
    return out


@triton.jit
def _advance(
    loss, total, lr, flat_steps, step, alive, stopped_at, loss_sum, out, rows, steps,
    tile: tl.constexpr,
):  # fmt: skip
    row = tl.arange(0, tile)
    real = row < rows
    now = tl.load(step)
    own_loss = tl.load(loss + row, real, 0.0)
    finite = tl.abs(own_loss) < float("inf")
    finite = finite & (tl.abs(tl.load(total + row, real, 0.0)) < float("inf"))
    was_alive = tl.load(alive + row, real, 0) != 0
    tl.store(stopped_at + row, now, real & was_alive & (finite == 0))
    is_alive = was_alive & finite
    tl.store(alive + row, is_alive.to(tl.uint8), real)
    so_far = tl.load(loss_sum + row, real, 0.0)
    tl.store(loss_sum + row, so_far + tl.where(is_alive, own_loss, 0.0), real)
    falls_for = tl.maximum(steps - tl.load(flat_steps + row, real, 0.0), 1.0)
    share = tl.minimum((steps - now).to(tl.float32) / falls_for, 1.0)
    tl.store(out + row, tl.where(is_alive, tl.load(lr + row, real, 0.0) * share, 0.0), real)
    tl.store(step, now + 1)


def advance_(
    loss: Tensor,
    total: Tensor,
    lr: Tensor,
    flat_steps: Tensor,
    step: Tensor,
    alive: Tensor,
    stopped_at: Tensor,
    loss_sum: Tensor,
    steps: int,
) -> Tensor:
    """In place; the learning rates of this step."""
    out = torch.empty_like(lr)
    with torch.cuda.device_of(lr):
        _advance[(1,)](
            *(loss.contiguous(), total, lr, flat_steps, step, alive.view(torch.uint8)),
            *(stopped_at, loss_sum, out, len(lr), steps),
            tile=triton.next_power_of_2(len(lr)), num_warps=1,
        )  # fmt: skip
    return out


@triton.jit
def _adam(
    weights, gradient, first, second, size, smallest, count, stride, share1, share2,
    tile: tl.constexpr,
):  # fmt: skip
    """m and v move towards g and g^2; w -= size m / (sqrt(v) + smallest)."""
    row = tl.program_id(0).to(tl.int64)
    own_size = tl.load(size + row)
    if own_size != 0:  # else the row stands still, whatever its gradient
        column = tl.program_id(1) * tile + tl.arange(0, tile)
        at, inside = row * stride + column, column < count
        g = tl.load(gradient + row * count + column, inside, 0.0)
        m = tl.load(first + at, inside, 0.0)
        v = tl.load(second + at, inside, 0.0)
        m += (g - m) * share1
        v += (g * g - v) * share2
        w = tl.load(weights + at, inside, 0.0)
        w -= own_size * m / (tl.sqrt(v) + tl.load(smallest))
        tl.store(first + at, m, inside)
        tl.store(second + at, v, inside)
        tl.store(weights + at, w, inside)


@triton.jit
def _correct(lr, step, size, smallest, rows, log2_beta1, log2_beta2, epsilon, tile: tl.constexpr):
    """In float64: 1 - beta^t is small at first, and there are few rows."""
    t = tl.load(step).to(tl.float64)
    correction = tl.sqrt(1 - tl.exp2(t * log2_beta2))
    row = tl.arange(0, tile)
    own = tl.load(lr + row, row < rows, 0.0) * correction / (1 - tl.exp2(t * log2_beta1))
    tl.store(size + row, own.to(tl.float32), row < rows)
    tl.store(smallest, (epsilon * correction).to(tl.float32))


def corrected(
    lr: Tensor, step: Tensor, betas: tuple[float, float], epsilon: float
) -> tuple[Tensor, Tensor]:
    """Learning rates and epsilon with both bias corrections."""
    size, smallest = torch.empty_like(lr), lr.new_empty(())
    with torch.cuda.device_of(lr):
        _correct[(1,)](
            *(lr.contiguous(), step, size, smallest, len(lr), *map(math.log2, betas), epsilon),
            tile=triton.next_power_of_2(len(lr)), num_warps=1,
        )  # fmt: skip
    return size, smallest


def adam_(
    weights: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    size: Tensor,
    smallest: Tensor,
    shares: tuple[float, float],
) -> None:
    """In place, for rows [replicas, parameters] that each have their own size of a step.

    Weights and moments may be columns of larger matrices, all of one shape.
    ``shares`` are what a gradient and its square have in their means: 1 - beta1 and 1 - beta2.
    """
    rows, count = weights.shape
    with torch.cuda.device_of(weights):
        _adam[rows, triton.cdiv(count, _ADAM_TILE)](
            *(weights, gradient.contiguous(), first, second, size, smallest, count),
            *(weights.stride(0), *shares),
            tile=_ADAM_TILE,
        )
