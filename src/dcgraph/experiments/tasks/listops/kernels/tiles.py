"""Tiles of matrices, for kernels that hold whole ones."""

import triton
import triton.language as tl


@triton.jit
def load(source, row, column, rows, columns):
    """A tile of a matrix [rows, columns], 0 outside."""
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    return tl.load(source + row[:, None] * columns + column[None, :], inside, 0.0)


@triton.jit
def load_turned(source, row, column, rows, columns):
    """The same of its transpose."""
    inside = (row[:, None] < columns) & (column[None, :] < rows)
    return tl.load(source + column[None, :] * columns + row[:, None], inside, 0.0)
