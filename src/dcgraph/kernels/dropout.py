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
def _draw(key, row, draw):
    """Four words, for eight entries of a row each."""
    zero = tl.zeros_like(row + draw).to(tl.uint32)
    return tl.philox(
        key, zero + row.to(tl.uint32), zero + draw.to(tl.uint32), zero, zero + 1, _ROUNDS
    )


@triton.jit
def _kept(word, half: tl.constexpr, threshold, factor):
    drawn = (word >> (16 * half)) & 0xFFFF
    return tl.where(drawn.to(tl.int32) >= threshold, factor, 0.0)


@triton.jit
def _drop_some(
    values, out, word, half: tl.constexpr, column, real, dim, threshold, factor,
    multiplies: tl.constexpr,
):  # fmt: skip
    """The entries of a row that have the same half of a word."""
    inside = real & (column < dim)
    kept = _kept(word, half, threshold, factor)
    if multiplies:
        kept *= tl.load(values + column, inside, 0.0).to(tl.float32)
    tl.store(out + column, kept.to(out.dtype.element_ty), inside)


@triton.jit
def _drop(
    values, values_group, values_row, out, out_group, out_row, keys, index,
    first, count, dim, each, threshold, factor,
    multiplies: tl.constexpr, listed: tl.constexpr, rows: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """Dropout factors of some rows of a codebook, or these rows multiplied with them."""
    group = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1).to(tl.int64) * rows + tl.arange(0, rows)[:, None]
    draw = tl.arange(0, width)[None, :]
    row = first + place
    if listed:
        row = tl.load(index + group * count + place, place < count, 0)
    a, b, c, d = _draw(tl.load(keys + group), row, draw)
    values += group * values_group + place * values_row
    out += group * out_group + place * out_row
    real = (place < count) & (draw < each)
    for half in tl.static_range(2):
        at = draw + half * each
        _drop_some(values, out, a, half, at, real, dim, threshold, factor, multiplies)
        at += 2 * each
        _drop_some(values, out, b, half, at, real, dim, threshold, factor, multiplies)
        at += 2 * each
        _drop_some(values, out, c, half, at, real, dim, threshold, factor, multiplies)
        at += 2 * each
        _drop_some(values, out, d, half, at, real, dim, threshold, factor, multiplies)


@triton.jit
def _product(
    query, codes, word, half: tl.constexpr, column, real, dim, threshold, factor,
    drops: tl.constexpr,
):  # fmt: skip
    """Of a query and its code, at the entries that have the same half of a word."""
    inside = real & (column < dim)
    code = tl.load(codes + column, inside, 0.0).to(tl.float32)
    if drops:
        kept = _kept(word, half, threshold, factor)
        code = (code * kept).to(codes.dtype.element_ty).to(tl.float32)
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
    draw = tl.arange(0, width)
    query += at * dim
    codes = codebook + group * codebook_group + row * codebook_row
    real = (draw < each) & (row >= 0) & (row < n)
    a, b, c, d = draw, draw, draw, draw
    if drops:
        a, b, c, d = _draw(tl.load(keys + group * rows), row, draw)
    total = tl.zeros([width], tl.float32)
    for half in tl.static_range(2):
        k = draw + half * each
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


def drop(keys: Tensor, share: float, values: Tensor, first: int, out: Tensor) -> Tensor:
    """Rows from ``first`` on of codebooks, or of their gradients, times their dropout factors."""
    _run_drop(values, out, keys.contiguous(), None, first, share)
    return out


def logits_at(p: Any, index: Tensor) -> Tensor:
    """The logits of one category of each row, without noise."""
    groups, rows, n, dim = p.shape
    out = p.tau.new_empty(groups, rows)
    each = triton.cdiv(dim, 8)
    codebook = p.codebook if p.codebook.stride(-1) == 1 else p.codebook.contiguous()
    factor = _factor(p.dropout, codebook.dtype)
    if out.numel():
        _at[(groups * rows,)](
            *(p.query.contiguous(), codebook, *codebook.stride()[:2], p.keys.contiguous()),
            *(index.contiguous(), p.tau.contiguous(), out),
            *(rows, n, dim, each, round(p.dropout * 65536), factor),
            drops=p.dropout > 0, width=triton.next_power_of_2(each), num_warps=1,
        )  # fmt: skip
    return out


def _run_drop(
    values: Tensor | None, out: Tensor, keys: Tensor, index: Tensor | None, first: int, share: float
) -> None:
    if not out.numel():
        return
    given = out if values is None else values
    given = given if given.stride(-1) == 1 else given.contiguous()
    groups, count, dim = out.shape
    each = triton.cdiv(dim, 8)
    factor = _factor(share, torch.promote_types(given.dtype, out.dtype))
    _drop[groups, triton.cdiv(count, _ROWS)](
        *(given, *given.stride()[:2], out, *out.stride()[:2], keys),
        keys if index is None else index,
        *(first, count, dim, each, round(share * 65536), factor),
        multiplies=values is not None, listed=index is not None, rows=_ROWS,
        width=triton.next_power_of_2(each),
    )  # fmt: skip


def _factor(share: float, dtype: torch.dtype) -> float:
    """By which entries that are kept grow, rounded as their dtype does."""
    return torch.tensor(1 / (1 - share), dtype=dtype).item()
