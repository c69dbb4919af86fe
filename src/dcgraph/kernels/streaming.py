r"""Mixing over a codebook as one stream: no product of query and codebook ever leaves the chip.

Forward: a program has some queries and a part of the codebook, over which it goes 128 rows at a
time. It makes their logits, draws their noise, and keeps the maximum, the sum of exponentials and
the mixture so far; at the end the parts are combined. Backward (``streaming_backward``): to have no
two programs add to the same number, there are two kernels. In the one a program has 128 rows of the
codebook and goes over all queries; in the other it has some queries and goes over a part of the
codebook.

This pays where a vector is short, and the logits are most of what would have to be stored and read.
Wider ones spill out of the registers.

The twin of the kernels is ``mixing.plain``.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .gumbel import LN_2, LOG2_E
from .perturbing import GROUP, QUARTER
from .streaming_tiles import (
    add_product,
    load_rows,
    noise_of,
    options_of,
    parts_of,
    perturbed,
    tensors_of,
)

_LOWEST = tl.constexpr(-1e30)  # instead of -inf, whose difference with itself is NaN
_NOWHERE = tl.constexpr(2**31 - 1)


@triton.jit
def _better(x, column, best, where):
    """The larger one of each row, and its column."""
    high, at = tl.max(x, 1, return_indices=True)
    return tl.maximum(best, high), tl.where(high > best, column + at, where)


@triton.jit
def _forward(
    query, codebook, tau, beta, keys, noise, noise_group, noise_row, mask, mask_group, mask_row,
    tops, totals, indices, mixtures,
    rows, n, dim, each,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr, mixes: tl.constexpr,
    chooses: tl.constexpr, height: tl.constexpr, width: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    part, group = tl.program_id(1), tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * height + tl.arange(0, height)
    across = row[:, None]
    at = group * rows + row
    query += group * rows * dim
    codebook += group * n * dim
    noise += group * noise_group
    mask += group * mask_group
    scale = (1.0 / tl.load(tau + at, row < rows, 1.0) * LOG2_E)[:, None]
    noise_scale = tl.load(beta + at, row < rows, 0.0)[:, None] * scale * -LN_2
    key = tl.load(keys + at, row < rows, 0)[:, None]
    q = load_rows(query, row, rows, dim, width, precision)
    lane = tl.arange(0, QUARTER)
    best = tl.full([height], _LOWEST, tl.float32)
    where = tl.full([height], _NOWHERE, tl.int32)
    total = tl.zeros([height], tl.float32)
    mixture = tl.zeros([height, width], tl.float32)
    for start in range(part * each, tl.minimum((part + 1) * each, n), GROUP):
        e0, e1, e2, e3 = noise_of(key, start // 4 + lane[None, :], noisy, given)
        c0 = load_rows(codebook, start + lane, n, dim, width, precision)
        c1 = load_rows(codebook, lane + (start + QUARTER), n, dim, width, precision)
        c2 = load_rows(codebook, lane + (start + 2 * QUARTER), n, dim, width, precision)
        c3 = load_rows(codebook, lane + (start + 3 * QUARTER), n, dim, width, precision)
        x0 = perturbed(
            tl.dot(q, tl.trans(c0), input_precision=precision), e0, scale, noise_scale,
            noise, noise_row, mask, mask_row, across, rows, start + lane[None, :], n,
            noisy, given, masked,
        )  # fmt: skip
        x1 = perturbed(
            tl.dot(q, tl.trans(c1), input_precision=precision), e1, scale, noise_scale,
            noise, noise_row, mask, mask_row, across, rows, lane[None, :] + (start + QUARTER), n,
            noisy, given, masked,
        )  # fmt: skip
        x2 = perturbed(
            tl.dot(q, tl.trans(c2), input_precision=precision), e2, scale, noise_scale,
            noise, noise_row, mask, mask_row, across, rows, lane[None, :] + (start + 2 * QUARTER),
            n, noisy, given, masked,
        )  # fmt: skip
        x3 = perturbed(
            tl.dot(q, tl.trans(c3), input_precision=precision), e3, scale, noise_scale,
            noise, noise_row, mask, mask_row, across, rows, lane[None, :] + (start + 3 * QUARTER),
            n, noisy, given, masked,
        )  # fmt: skip
        before = best
        if chooses:
            best, where = _better(x0, start, best, where)
            best, where = _better(x1, start + QUARTER, best, where)
            best, where = _better(x2, start + 2 * QUARTER, best, where)
            best, where = _better(x3, start + 3 * QUARTER, best, where)
        else:
            high = tl.maximum(tl.maximum(x0, x1), tl.maximum(x2, x3))
            best = tl.maximum(best, tl.max(high, 1))
        p0, p1 = tl.exp2(x0 - best[:, None]), tl.exp2(x1 - best[:, None])
        p2, p3 = tl.exp2(x2 - best[:, None]), tl.exp2(x3 - best[:, None])
        factor = tl.exp2(before - best)
        total = total * factor + tl.sum((p0 + p1) + (p2 + p3), 1)
        if mixes:
            mixture *= factor[:, None]
            mixture = add_product(p0, c0, mixture, precision)
            mixture = add_product(p1, c1, mixture, precision)
            mixture = add_product(p2, c2, mixture, precision)
            mixture = add_product(p3, c3, mixture, precision)
    into = part * tl.num_programs(2) * rows + at
    tl.store(tops + into, best, row < rows)
    tl.store(totals + into, total, row < rows)
    if chooses:
        tl.store(indices + into, where, row < rows)
    if mixes:
        d = tl.arange(0, width)[None, :]
        inside = (row[:, None] < rows) & (d < dim)
        tl.store(mixtures + into[:, None] * dim + d, mixture, inside)


@triton.jit
def _combine(
    tops, totals, indices, mixtures, out, lse, index, top_out,
    count, dim, parts,
    mixes: tl.constexpr, chooses: tl.constexpr, most: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """One row from its parts."""
    at = tl.program_id(0).to(tl.int64)
    part = tl.arange(0, most)
    place = part.to(tl.int64) * count + at
    own = tl.load(tops + place, part < parts, _LOWEST)
    top = tl.max(own, 0)
    weight = tl.exp2(own - top)
    total = tl.sum(weight * tl.load(totals + place, part < parts, 0.0), 0)
    divisor = tl.where(total == 0, 1.0, total)
    natural = tl.where(total == 0, float("-inf"), top * LN_2)
    tl.store(lse + at, natural + tl.log2(divisor) * LN_2)
    tl.store(top_out + at, tl.where(total == total, natural, total))  # NaN stays visible
    if chooses:
        where = tl.load(indices + place, (part < parts) & (own == top), _NOWHERE)
        found = tl.min(where, 0)
        tl.store(index + at, tl.where(found < _NOWHERE, found, -1).to(tl.int64))
    if mixes:
        d = tl.arange(0, width)
        sum_so_far = tl.zeros([width], tl.float32)
        for number in range(parts):
            one = at + tl.cast(number, tl.int64) * count
            factor = tl.exp2(tl.load(tops + one) - top)
            sum_so_far += factor * tl.load(mixtures + one * dim + d, d < dim, 0.0)
        tl.store(out + at * dim + d, (sum_so_far / divisor).to(out.dtype.element_ty), d < dim)


def forward(p: Any, *, mixes: bool, chooses: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The mixture (or an empty tensor), log-sum-exp, argmax and maximum of a, for every row."""
    groups, rows, n, dim = p.shape
    options = options_of(p)
    tiles = triton.cdiv(rows, options["height"])
    parts, each = parts_of(n, tiles * groups)
    new = p.tau.new_empty
    tops, totals = new(parts, groups, rows), new(parts, groups, rows)
    indices = new(parts if chooses else 0, groups, rows, dtype=torch.int32)
    mixtures = new(parts if mixes else 0, groups, rows, dim)
    index = torch.full_like(p.keys, -1) if not chooses else torch.empty_like(p.keys)
    mixture = new(groups, rows, dim if mixes else 0)
    lse, top = new(groups, rows), new(groups, rows)
    if groups * rows:
        _forward[tiles, parts, groups](
            *tensors_of(p), tops, totals, indices, mixtures, rows, n, dim, each,
            mixes=mixes, chooses=chooses, **options,
        )  # fmt: skip
        _combine[(groups * rows,)](
            *(tops, totals, indices, mixtures, mixture, lse, index, top),
            *(groups * rows, dim, parts),
            mixes=mixes, chooses=chooses, most=triton.next_power_of_2(parts),
            width=options["width"], num_warps=1,
        )  # fmt: skip
    return mixture, lse, index, top
