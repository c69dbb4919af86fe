"""A step of Adam in one pass over memory.

The twins of the kernels are ``training.adam._all_rows`` and ``_corrected``.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = 1024


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
        _adam[rows, triton.cdiv(count, _TILE)](
            *(weights, gradient.contiguous(), first, second, size, smallest, count),
            *(weights.stride(0), *shares),
            tile=_TILE,
        )
