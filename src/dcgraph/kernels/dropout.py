"""Dropout of rows of a codebook: what is kept is drawn inside, as ``counters.draw_kept`` has it.

Where rows are multiplied with their factors, these are never stored. The twins of ``drop`` and
``logits_at`` are in ``mixing.steps_by_torch``.
"""

from typing import Any

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
    multiplies: tl.constexpr, copies: tl.constexpr,
):  # fmt: skip
    """The entries of a row that have the same half of a word."""
    inside = real & (column < dim)
    result = kept(word, half, threshold, factor)
    if multiplies:
        value = tl.load(values + column, inside, 0.0).to(tl.float32)
        result *= value
        if copies:
            tl.store(copy + column, value.to(copy.dtype.element_ty), inside)
    tl.store(out + column, result.to(out.dtype.element_ty), inside)


@triton.jit
def _drop(
    values, values_group, values_row, out, out_group, out_row, copy, keys, index,
    first, count, dim, each, threshold, factor,
    multiplies: tl.constexpr, listed: tl.constexpr, copies: tl.constexpr, rows: tl.constexpr,
    width: tl.constexpr,
):  # fmt: skip
    """Dropout factors of some rows of a codebook, or these rows multiplied with them.

    A copy of the rows is laid out as these products are.
    """
    group = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1).to(tl.int64) * rows + tl.arange(0, rows)[:, None]
    k = tl.arange(0, width)[None, :]
    row = first + place
    if listed:
        row = tl.load(index + group * count + place, place < count, 0)
    a, b, c, d = draw(tl.load(keys + group), row, k)
    values += group * values_group + place * values_row
    out += group * out_group + place * out_row
    copy += group * out_group + place * out_row
    real = (place < count) & (k < each)
    for half in tl.static_range(2):
        at = k + half * each
        _drop_some(values, out, copy, a, half, at, real, dim, threshold, factor, multiplies, copies)
        at += 2 * each
        _drop_some(values, out, copy, b, half, at, real, dim, threshold, factor, multiplies, copies)
        at += 2 * each
        _drop_some(values, out, copy, c, half, at, real, dim, threshold, factor, multiplies, copies)
        at += 2 * each
        _drop_some(values, out, copy, d, half, at, real, dim, threshold, factor, multiplies, copies)


@triton.jit
def _product(
    query, codes, word, half: tl.constexpr, column, real, dim, threshold, factor,
    drops: tl.constexpr,
):  # fmt: skip
    """Of a query and its code, at the entries that have the same half of a word."""
    inside = real & (column < dim)
    code = tl.load(codes + column, inside, 0.0).to(tl.float32)
    if drops:
        code *= kept(word, half, threshold, factor)
        code = code.to(codes.dtype.element_ty).to(tl.float32)
    return tl.load(query + column, inside, 0.0).to(tl.float32) * code


@triton.jit
def _at(
    query, codebook, codebook_group, codebook_row, keys, index, tau, out,
    rows, n, dim, each, threshold, factor,
    drops: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64)
    group = at // rows
    row = tl.load(index + at)
    place = tl.arange(0, width)
    query += at * dim
    codes = codebook + group * codebook_group + row * codebook_row
    real = (place < each) & (row >= 0) & (row < n)
    a, b, c, d = place, place, place, place
    if drops:
        a, b, c, d = draw(tl.load(keys + group * rows), row, place)
    total = tl.zeros([width], tl.float32)
    for half in tl.static_range(2):
        k = place + half * each
        total += _product(query, codes, a, half, k, real, dim, threshold, factor, drops)
        k += 2 * each
        total += _product(query, codes, b, half, k, real, dim, threshold, factor, drops)
        k += 2 * each
        total += _product(query, codes, c, half, k, real, dim, threshold, factor, drops)
        k += 2 * each
        total += _product(query, codes, d, half, k, real, dim, threshold, factor, drops)
    result = tl.sum(total, 0) / tl.load(tau + at)
    exists = (row >= 0) & (row < n)
    tl.store(out + at, tl.where(exists, result, float("nan")))


def draw_kept(keys: Tensor, rows: Tensor, dim: int, share: float) -> Tensor:
    """Dropout factors [*groups, count, dim] of these rows of codebooks, one key for each."""
    out = torch.empty(*rows.shape, dim, device=keys.device)
    joined = out.view(-1, rows.shape[-1], dim) if out.numel() else out
    _run_drop(None, joined, keys.contiguous(), rows.contiguous(), 0, share)
    return out


def drop(
    keys: Tensor, share: float, values: Tensor, first: int, out: Tensor, copy: Tensor | None = None
) -> Tensor:
    """Rows from ``first`` on of codebooks, or of their gradients, times their dropout factors.

    ``copy``, of the strides of ``out``, gets the rows as they are.
    """
    _run_drop(values, out, keys.contiguous(), None, first, share, copy)
    return out


def logits_at(p: Any, index: Tensor) -> Tensor:
    """The logits of one category of each row, without noise."""
    groups, rows, n, dim = p.shape
    out = p.tau.new_empty(groups, rows)
    each = triton.cdiv(dim, 8)
    codebook = p.codebook if p.codebook.stride(-1) == 1 else p.codebook.contiguous()
    factor = factor_of(p.dropout, codebook.dtype)
    if out.numel():
        _at[(groups * rows,)](
            *(p.query.contiguous(), codebook, *codebook.stride()[:2], p.keys.contiguous()),
            *(index.contiguous(), p.tau.contiguous(), out),
            *(rows, n, dim, each, round(p.dropout * 65536), factor),
            drops=p.dropout > 0, width=triton.next_power_of_2(each), num_warps=1,
        )  # fmt: skip
    return out


def _run_drop(
    values: Tensor | None,
    out: Tensor,
    keys: Tensor,
    index: Tensor | None,
    first: int,
    share: float,
    copy: Tensor | None = None,
) -> None:
    if not out.numel():
        return
    given = out if values is None else values
    given = given if given.stride(-1) == 1 else given.contiguous()
    groups, count, dim = out.shape
    each = triton.cdiv(dim, 8)
    factor = factor_of(share, torch.promote_types(given.dtype, out.dtype))
    _drop[groups, triton.cdiv(count, _ROWS)](
        *(given, *given.stride()[:2], out, *out.stride()[:2]),
        *(out if copy is None else copy, keys, keys if index is None else index),
        *(first, count, dim, each, round(share * 65536), factor),
        multiplies=values is not None, listed=index is not None, copies=copy is not None,
        rows=_ROWS, width=triton.next_power_of_2(each),
    )  # fmt: skip


def factor_of(share: float, dtype: torch.dtype) -> float:
    """By which entries that are kept grow, rounded as their dtype does."""
    return torch.tensor(1 / (1 - share), dtype=dtype).item()
