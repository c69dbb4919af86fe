r"""A pass over a codebook as one stream: no product of query and codebook ever leaves the chip.

Forward: a program has some queries and a part of the codebook, over which it goes 128 rows at a
time. It makes their logits, draws their noise, and keeps the maximum, the sum of exponentials and
the mixture so far; at the end the parts are combined. Backward (``_codebook_stream_backward``): to
have no two programs add to the same number, there are two kernels. In the one a program has 128
rows of the codebook and goes over all queries; in the other it has some queries and goes over a
part of the codebook.

This pays where a vector is short, and the logits are most of what would have to be stored and read.
Wider ones spill out of the registers.

Groups of 128 columns share draws of noise. Where the rows here are some of a larger codebook, and
the first of them is inside such a group, a kernel counts from the start of the group: ``low`` is
how many rows before the first one it passes over, and ``end`` is where the rows end.

The reference implementation is ``codebook._problem.scan_dense``.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ._noise import GROUP, LN_2, LOG2_E, QUARTER, as_bytes, log2_noise, strided

_PROGRAMS = 528  # of a launch, at least: 4 for each of the 132 multiprocessors of an H200
_PARTS = 256  # of the codebook, at most
_LOWEST = tl.constexpr(-1e30)  # instead of -inf, whose difference with itself is NaN
_NOWHERE = tl.constexpr(2**31 - 1)


@triton.jit
def rounded(x, precision: tl.constexpr):
    """To the nearest number that TF32 has; a product of its own accord cuts the digits off."""
    if precision == "tf32" and x.dtype == tl.float32:
        bits = x.to(tl.int32, bitcast=True)
        x = ((bits + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return x


@triton.jit
def load_rows(source, row, low, rows, dim, width: tl.constexpr, precision: tl.constexpr):
    """Rows [.., width] of a matrix, beyond its edges 0."""
    d = tl.arange(0, width)[None, :]
    inside = (row[:, None] >= low) & (row[:, None] < rows) & (d < dim)
    value = tl.load(source + row[:, None].to(tl.int64) * dim + d, inside, 0.0)
    return rounded(value, precision)


@triton.jit
def add_product(a, b, to, precision: tl.constexpr):
    return tl.dot(rounded(a.to(b.dtype), precision), b, to, input_precision=precision)


@triton.jit
def perturbed(
    score, log2_e, scale, noise_scale, noise, noise_row, mask, mask_row, row, rows,
    column, low, end, noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr,
):  # fmt: skip
    """log2(e) a of a tile of logits, of any orientation; -inf where there is nothing to choose."""
    x = score * scale
    real = (column >= low) & (column < end) & (row < rows)
    if noisy:
        if given:
            log2_e = tl.load(noise + row.to(tl.int64) * noise_row + column, real, 0.0) * -LOG2_E
        x += noise_scale * log2_e
    if masked:
        real = real & (tl.load(mask + row.to(tl.int64) * mask_row + column, real, 0) != 0)
    return tl.where(real, x, float("-inf"))


@triton.jit
def noise_of(key, draws, noisy: tl.constexpr, given: tl.constexpr):
    zero = tl.zeros_like(key + draws).to(tl.float32)
    e0, e1, e2, e3 = zero, zero, zero, zero
    if noisy and not given:
        e0, e1, e2, e3 = log2_noise(key, tl.zeros_like(key).to(tl.int32) + draws)
    return e0, e1, e2, e3


@triton.jit
def _better(x, column, best, where):
    """The larger one of each row, and its column."""
    high, at = tl.max(x, 1, return_indices=True)
    return tl.maximum(best, high), tl.where(high > best, column + at, where)


@triton.jit
def _forward(
    query, codebook, tau, beta, keys, noise, noise_group, noise_row, mask, mask_group, mask_row,
    tops, totals, indices, mixtures,
    rows, n, dim, low, base, each,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr, mixes: tl.constexpr,
    chooses: tl.constexpr, height: tl.constexpr, width: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    part, group = tl.program_id(1), tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * height + tl.arange(0, height)
    across = row[:, None]
    at = group * rows + row
    query += group * rows * dim
    codebook += (group * n - low) * dim
    noise += group * noise_group - low
    mask += group * mask_group - low
    end = n + low
    scale = (1.0 / tl.load(tau + at, row < rows, 1.0) * LOG2_E)[:, None]
    noise_scale = tl.load(beta + at, row < rows, 0.0)[:, None] * scale * -LN_2
    key = tl.load(keys + at, row < rows, 0)[:, None]
    q = load_rows(query, row, 0, rows, dim, width, precision)
    lane = tl.arange(0, QUARTER)
    best = tl.full([height], _LOWEST, tl.float32)
    where = tl.full([height], _NOWHERE, tl.int32)
    total = tl.zeros([height], tl.float32)
    mixture = tl.zeros([height, width], tl.float32)
    for start in range(part * each, tl.minimum((part + 1) * each, end), GROUP):
        e0, e1, e2, e3 = noise_of(key, (base + start) // 4 + lane[None, :], noisy, given)
        c0 = load_rows(codebook, start + lane, low, end, dim, width, precision)
        c1 = load_rows(codebook, lane + (start + QUARTER), low, end, dim, width, precision)
        c2 = load_rows(codebook, lane + (start + 2 * QUARTER), low, end, dim, width, precision)
        c3 = load_rows(codebook, lane + (start + 3 * QUARTER), low, end, dim, width, precision)
        x0 = perturbed(
            tl.dot(q, tl.trans(c0), input_precision=precision), e0, scale, noise_scale,
            noise, noise_row, mask, mask_row, across, rows, start + lane[None, :], low, end,
            noisy, given, masked,
        )  # fmt: skip
        x1 = perturbed(
            tl.dot(q, tl.trans(c1), input_precision=precision), e1, scale, noise_scale,
            noise, noise_row, mask, mask_row, across, rows, lane[None, :] + (start + QUARTER),
            low, end, noisy, given, masked,
        )  # fmt: skip
        x2 = perturbed(
            tl.dot(q, tl.trans(c2), input_precision=precision), e2, scale, noise_scale,
            noise, noise_row, mask, mask_row, across, rows, lane[None, :] + (start + 2 * QUARTER),
            low, end, noisy, given, masked,
        )  # fmt: skip
        x3 = perturbed(
            tl.dot(q, tl.trans(c3), input_precision=precision), e3, scale, noise_scale,
            noise, noise_row, mask, mask_row, across, rows, lane[None, :] + (start + 3 * QUARTER),
            low, end, noisy, given, masked,
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
        found = tl.where(where < _NOWHERE, where - low, where)
        tl.store(indices + into, found, row < rows)
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
    low, base = place_of(p)
    parts, each = parts_of(n + low, tiles * groups)
    new = p.tau.new_empty
    tops, totals = new(parts, groups, rows), new(parts, groups, rows)
    indices = new(parts if chooses else 0, groups, rows, dtype=torch.int32)
    mixtures = new(parts if mixes else 0, groups, rows, dim)
    index = torch.full_like(p.keys, -1) if not chooses else torch.empty_like(p.keys)
    mixture = new(groups, rows, dim if mixes else 0)
    lse, top = new(groups, rows), new(groups, rows)
    if groups * rows:
        _forward[tiles, parts, groups](
            *tensors_of(p), tops, totals, indices, mixtures, rows, n, dim, low, base, each,
            mixes=mixes, chooses=chooses, **options,
        )  # fmt: skip
        _combine[(groups * rows,)](
            *(tops, totals, indices, mixtures, mixture, lse, index, top),
            *(groups * rows, dim, parts),
            mixes=mixes, chooses=chooses, most=triton.next_power_of_2(parts),
            width=options["width"], num_warps=1,
        )  # fmt: skip
    return mixture, lse, index, top


def tensors_of(p: Any) -> tuple[Any, ...]:
    return (
        *(p.query.contiguous(), p.codebook.contiguous()),
        *(p.tau.contiguous(), p.beta.contiguous(), p.keys.contiguous()),
        *strided(p.noise, p.tau),
        *strided(as_bytes(p.mask), p.tau),
    )


def options_of(p: Any) -> dict[str, Any]:
    """For the kernels whose programs have queries."""
    tf32 = getattr(torch.backends.cuda.matmul, "fp32_precision", "ieee") == "tf32"
    return {
        "noisy": p.noisy,
        "given": p.noise is not None,
        "masked": p.mask is not None,
        "height": 64,
        "width": max(16, triton.next_power_of_2(p.codebook.shape[-1])),
        "precision": "tf32" if tf32 else "tf32x3",  # the second is as good as float32
        "num_warps": 4,
        "num_stages": 2,
    }


def place_of(p: Any) -> tuple[int, int]:
    """Where in its group of columns the first row is, and the first column of the group."""
    low = p.first % GROUP.value
    return low, p.first - low


def parts_of(n: int, others: int) -> tuple[int, int]:
    """In how many parts to cut the codebook, so that there is enough to do at the same time, and
    how many rows each of them has."""
    whole = triton.cdiv(n, GROUP.value)
    parts = min(whole, _PARTS, triton.cdiv(_PROGRAMS, max(1, others)))
    each = triton.cdiv(whole, parts)
    return triton.cdiv(whole, each), each * GROUP.value
