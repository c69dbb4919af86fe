"""How the weights of models and the tiles of matrices lie in memory."""

import math

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def load(source, row, column, rows, columns):
    """A tile of a matrix [rows, columns], 0 outside."""
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    return tl.load(source + row[:, None] * columns + column[None, :], inside, 0.0)


@triton.jit
def load_transposed(source, row, column, rows, columns):
    """The same of its transpose."""
    inside = (row[:, None] < columns) & (column[None, :] < rows)
    return tl.load(source + column[None, :] * columns + row[:, None], inside, 0.0)


def by_model(value: Tensor) -> tuple[Tensor, int]:
    """A tensor [models, ...] whose models need not be neighbours, and how far they are apart."""
    one = value[0]
    value = value if one.is_contiguous() else value.contiguous()
    return value, value.stride(0)


def apart(joined: Tensor, *shapes: tuple[int, ...]) -> list[Tensor]:
    """Tensors [models, *shape] that lie one after the other in the rows of a matrix."""
    parts = joined.split([math.prod(shape) for shape in shapes], -1)
    return [part.reshape(-1, *shape) for part, shape in zip(parts, shapes, strict=True)]
