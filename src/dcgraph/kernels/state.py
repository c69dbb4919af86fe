"""What a training step does with a few numbers for each replica, in one kernel instead of twenty.

The twins of the kernels are ``training.course._advance_by_torch`` and ``_totals_by_torch``.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE, _PASSES = 2048, 8


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
            _add_up[rows, triton.cdiv(count, _TILE * _PASSES)](
                gradient.contiguous(), out, count, tile=_TILE, passes=_PASSES
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
