"""Dropout of tables of vectors: the factors are drawn inside and never stored.

The reference implementation is ``tasks.paths.dropout.drop_by_torch``.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 16
_ROUNDS = tl.constexpr(7)


@triton.jit
def draw(key, row, place):
    """Four words, for eight entries of a row each."""
    zero = tl.zeros_like(row + place).to(tl.uint32)
    return tl.philox(
        key, zero + row.to(tl.uint32), zero + place.to(tl.uint32), zero, zero + 1, _ROUNDS
    )


@triton.jit
def kept(word, half: tl.constexpr, threshold, factor):
    drawn = (word >> (16 * half)) & 0xFFFF
    return tl.where(drawn.to(tl.int32) >= threshold, factor, 0.0)


@triton.jit
def _drop_some(
    values, out, copy, word, half: tl.constexpr, column, real, dim, threshold, factor,
    copies: tl.constexpr,
):  # fmt: skip
    """The entries of a row that have the same half of a word."""
    inside = real & (column < dim)
    value = tl.load(values + column, inside, 0.0).to(tl.float32)
    result = kept(word, half, threshold, factor) * value
    if copies:
        tl.store(copy + column, value.to(copy.dtype.element_ty), inside)
    tl.store(out + column, result.to(out.dtype.element_ty), inside)


@triton.jit
def _drop(
    values, values_group, values_row, out, out_group, out_row, copy, keys,
    count, dim, each, threshold, factor,
    copies: tl.constexpr, rows: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """Some rows multiplied with their dropout factors; a copy is laid out as these products are."""
    group = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1).to(tl.int64) * rows + tl.arange(0, rows)[:, None]
    k = tl.arange(0, width)[None, :]
    a, b, c, d = draw(tl.load(keys + group), place, k)
    values += group * values_group + place * values_row
    out += group * out_group + place * out_row
    copy += group * out_group + place * out_row
    real = (place < count) & (k < each)
    for half in tl.static_range(2):
        at = k + half * each
        _drop_some(values, out, copy, a, half, at, real, dim, threshold, factor, copies)
        at += 2 * each
        _drop_some(values, out, copy, b, half, at, real, dim, threshold, factor, copies)
        at += 2 * each
        _drop_some(values, out, copy, c, half, at, real, dim, threshold, factor, copies)
        at += 2 * each
        _drop_some(values, out, copy, d, half, at, real, dim, threshold, factor, copies)


def drop(
    keys: Tensor, share: float, tables: Tensor, out: Tensor, copy: Tensor | None = None
) -> Tensor:
    """Tables, or their gradients, times their dropout factors.

    ``copy``, of the strides of ``out``, gets the tables as they are.
    """
    if not out.numel():
        return out
    tables = tables if tables.stride(-1) == 1 else tables.contiguous()
    groups, count, dim = out.shape
    each = triton.cdiv(dim, 8)
    factor = factor_of(share, torch.promote_types(tables.dtype, out.dtype))
    _drop[groups, triton.cdiv(count, _ROWS)](
        *(tables, *tables.stride()[:2], out, *out.stride()[:2]),
        *(out if copy is None else copy, keys.contiguous()),
        *(count, dim, each, round(share * 65536), factor),
        copies=copy is not None, rows=_ROWS, width=triton.next_power_of_2(each),
    )  # fmt: skip
    return out


def factor_of(share: float, dtype: torch.dtype) -> float:
    """By which entries that are kept grow, rounded as their dtype does."""
    return torch.tensor(1 / (1 - share), dtype=dtype).item()
