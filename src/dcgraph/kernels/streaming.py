r"""Mixing over a codebook as one stream: no product of query and codebook ever leaves the chip.

Forward: a program has some queries and a part of the codebook, over which it goes 128 rows at a
time. It makes their logits, draws their noise, and keeps the maximum, the sum of exponentials and
the mixture so far; at the end the parts are combined. Backward: to have no two programs add to the
same number, there are two kernels. In the one a program has 128 rows of the codebook and goes over
all queries; in the other it has some queries and goes over a part of the codebook.

This pays where a vector is short, and the logits are most of what would have to be stored and read.
Wider ones spill out of the registers.

The twin of the kernels is ``mixing.plain``.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .mixing_backward import offsets
from .perturbing import GROUP, LN_2, LOG2_E, QUARTER, as_bytes, log2_noise, strided

_LOWEST = tl.constexpr(-1e30)  # instead of -inf, whose difference with itself is NaN
_NOWHERE = tl.constexpr(2**31 - 1)
_PROGRAMS = 528  # of a launch, at least: 4 for each of the 132 multiprocessors of an H200
_PARTS = 256  # of the codebook, at most


@triton.jit
def _rounded(x, precision: tl.constexpr):
    """To the nearest number that TF32 has; a product of its own accord cuts the digits off."""
    if precision == "tf32" and x.dtype == tl.float32:
        bits = x.to(tl.int32, bitcast=True)
        x = ((bits + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return x


@triton.jit
def _load(source, row, rows, dim, width: tl.constexpr, precision: tl.constexpr):
    """Rows [.., width] of a matrix, beyond its edges 0."""
    d = tl.arange(0, width)[None, :]
    inside = (row[:, None] < rows) & (d < dim)
    value = tl.load(source + row[:, None].to(tl.int64) * dim + d, inside, 0.0)
    return _rounded(value, precision)


@triton.jit
def _add_product(a, b, to, precision: tl.constexpr):
    return tl.dot(_rounded(a.to(b.dtype), precision), b, to, input_precision=precision)


@triton.jit
def _perturbed(
    score, log2_e, scale, noise_scale, noise, noise_row, mask, mask_row, row, rows, column, n,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr,
):  # fmt: skip
    """log2(e) a of a tile of logits, of any orientation; -inf where there is nothing to choose."""
    x = score * scale
    real = (column < n) & (row < rows)
    if noisy:
        if given:
            log2_e = tl.load(noise + row.to(tl.int64) * noise_row + column, real, 0.0) * -LOG2_E
        x += noise_scale * log2_e
    if masked:
        real = real & (tl.load(mask + row.to(tl.int64) * mask_row + column, real, 0) != 0)
    return tl.where(real, x, float("-inf"))


@triton.jit
def _noise(key, draws, noisy: tl.constexpr, given: tl.constexpr):
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
    q = _load(query, row, rows, dim, width, precision)
    lane = tl.arange(0, QUARTER)
    best = tl.full([height], _LOWEST, tl.float32)
    where = tl.full([height], _NOWHERE, tl.int32)
    total = tl.zeros([height], tl.float32)
    mixture = tl.zeros([height, width], tl.float32)
    for start in range(part * each, tl.minimum((part + 1) * each, n), GROUP):
        e0, e1, e2, e3 = _noise(key, start // 4 + lane[None, :], noisy, given)
        c0 = _load(codebook, start + lane, n, dim, width, precision)
        c1 = _load(codebook, lane + (start + QUARTER), n, dim, width, precision)
        c2 = _load(codebook, lane + (start + 2 * QUARTER), n, dim, width, precision)
        c3 = _load(codebook, lane + (start + 3 * QUARTER), n, dim, width, precision)
        x0 = _perturbed(
            tl.dot(q, tl.trans(c0), input_precision=precision), e0, scale, noise_scale,
            noise, noise_row, mask, mask_row, across, rows, start + lane[None, :], n,
            noisy, given, masked,
        )  # fmt: skip
        x1 = _perturbed(
            tl.dot(q, tl.trans(c1), input_precision=precision), e1, scale, noise_scale,
            noise, noise_row, mask, mask_row, across, rows, lane[None, :] + (start + QUARTER), n,
            noisy, given, masked,
        )  # fmt: skip
        x2 = _perturbed(
            tl.dot(q, tl.trans(c2), input_precision=precision), e2, scale, noise_scale,
            noise, noise_row, mask, mask_row, across, rows, lane[None, :] + (start + 2 * QUARTER),
            n, noisy, given, masked,
        )  # fmt: skip
        x3 = _perturbed(
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
            mixture = _add_product(p0, c0, mixture, precision)
            mixture = _add_product(p1, c1, mixture, precision)
            mixture = _add_product(p2, c2, mixture, precision)
            mixture = _add_product(p3, c3, mixture, precision)
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


@triton.jit
def _slopes(
    x, inner, lse, offset, over_tau, column, target, of_target,
    mixes: tl.constexpr, with_target: tl.constexpr,
):  # fmt: skip
    """z and delta of a tile."""
    z = tl.exp2(x - lse)
    slope = offset
    if mixes:
        slope = inner + offset
    delta = z * slope
    if with_target:
        delta -= tl.where(column == target, of_target, 0.0)
    return z, delta * over_tau


@triton.jit
def _of_rows(tau, beta, keys, lse, offset, of_lse, targets, at, real, with_target: tl.constexpr):
    """What the backward kernels need to know of each query."""
    over_tau = 1.0 / tl.load(tau + at, real, 1.0)
    scale = over_tau * LOG2_E
    noise_scale = tl.load(beta + at, real, 0.0) * scale * -LN_2
    key = tl.load(keys + at, real, 0)
    total = tl.load(lse + at, real, 0.0) * LOG2_E
    total = tl.where(total == float("-inf"), 0.0, total)
    shift = tl.load(offset + at, real, 0.0)
    target = tl.full(key.shape, -1, tl.int32)
    of_target = tl.zeros(key.shape, tl.float32)
    if with_target:
        target = tl.load(targets + at, real, -1).to(tl.int32)
        of_target = tl.load(of_lse + at, real, 0.0)
    return over_tau, scale, noise_scale, key, total, shift, target, of_target


@triton.jit
def _quarter_of_codebook(
    c, q, v, d_codes, log2_e, first,
    over_tau, scale, noise_scale, total, shift, target, of_target,
    noise, noise_row, mask, mask_row, row, rows, n,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr, mixes: tl.constexpr,
    with_z: tl.constexpr, with_target: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """What some queries add to the gradient of 32 rows; logits here are [codebook, query]."""
    column = (tl.arange(0, QUARTER) + first)[:, None]
    score = tl.dot(c, tl.trans(q), input_precision=precision)
    x = _perturbed(
        score, log2_e, scale[None, :], noise_scale[None, :], noise, noise_row, mask, mask_row,
        row[None, :], rows, column, n, noisy, given, masked,
    )  # fmt: skip
    inner = score
    if mixes:
        inner = tl.dot(c, tl.trans(v), input_precision=precision)
    z, delta = _slopes(
        x, inner, total[None, :], shift[None, :], over_tau[None, :], column, target[None, :],
        of_target[None, :], mixes, with_target,
    )  # fmt: skip
    d_codes = _add_product(delta, q, d_codes, precision)
    if with_z:
        d_codes = _add_product(z, v, d_codes, precision)
    return d_codes


@triton.jit
def _store(target, row, rows, dim, value, width: tl.constexpr):
    d = tl.arange(0, width)[None, :]
    inside = (row[:, None] < rows) & (d < dim)
    place = target + row[:, None].to(tl.int64) * dim + d
    tl.store(place, value.to(target.dtype.element_ty), inside)


@triton.jit
def _backward_codebook(
    query, codebook, gradient, tau, beta, keys,
    noise, noise_group, noise_row, mask, mask_group, mask_row,
    lse, offset, of_lse, targets, d_codebook,
    rows, n, dim,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr, mixes: tl.constexpr,
    with_z: tl.constexpr, with_target: tl.constexpr,
    height: tl.constexpr, width: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    start, group = tl.program_id(0) * GROUP, tl.program_id(1).to(tl.int64)
    query += group * rows * dim
    gradient += group * rows * dim
    codebook += group * n * dim
    d_codebook += group * n * dim
    noise += group * noise_group
    mask += group * mask_group
    lane = tl.arange(0, QUARTER)
    r0, r1 = lane + start, lane + (start + QUARTER)
    r2, r3 = lane + (start + 2 * QUARTER), lane + (start + 3 * QUARTER)
    c0 = _load(codebook, r0, n, dim, width, precision)
    c1 = _load(codebook, r1, n, dim, width, precision)
    c2 = _load(codebook, r2, n, dim, width, precision)
    c3 = _load(codebook, r3, n, dim, width, precision)
    d0 = tl.zeros([QUARTER, width], tl.float32)
    d1 = tl.zeros([QUARTER, width], tl.float32)
    d2 = tl.zeros([QUARTER, width], tl.float32)
    d3 = tl.zeros([QUARTER, width], tl.float32)
    for first in range(0, rows, height):
        row = first + tl.arange(0, height)
        over_tau, scale, noise_scale, key, total, shift, target, of_target = _of_rows(
            tau, beta, keys, lse, offset, of_lse, targets, group * rows + row, row < rows,
            with_target,
        )  # fmt: skip
        q = _load(query, row, rows, dim, width, precision)
        v = q
        if mixes:
            v = _load(gradient, row, rows, dim, width, precision)
        e0, e1, e2, e3 = _noise(key[None, :], (start // 4 + lane)[:, None], noisy, given)
        d0 = _quarter_of_codebook(
            c0, q, v, d0, e0, start,
            over_tau, scale, noise_scale, total, shift, target, of_target,
            noise, noise_row, mask, mask_row, row, rows, n,
            noisy, given, masked, mixes, with_z, with_target, precision,
        )  # fmt: skip
        d1 = _quarter_of_codebook(
            c1, q, v, d1, e1, start + QUARTER,
            over_tau, scale, noise_scale, total, shift, target, of_target,
            noise, noise_row, mask, mask_row, row, rows, n,
            noisy, given, masked, mixes, with_z, with_target, precision,
        )  # fmt: skip
        d2 = _quarter_of_codebook(
            c2, q, v, d2, e2, start + 2 * QUARTER,
            over_tau, scale, noise_scale, total, shift, target, of_target,
            noise, noise_row, mask, mask_row, row, rows, n,
            noisy, given, masked, mixes, with_z, with_target, precision,
        )  # fmt: skip
        d3 = _quarter_of_codebook(
            c3, q, v, d3, e3, start + 3 * QUARTER,
            over_tau, scale, noise_scale, total, shift, target, of_target,
            noise, noise_row, mask, mask_row, row, rows, n,
            noisy, given, masked, mixes, with_z, with_target, precision,
        )  # fmt: skip
    _store(d_codebook, r0, n, dim, d0, width)
    _store(d_codebook, r1, n, dim, d1, width)
    _store(d_codebook, r2, n, dim, d2, width)
    _store(d_codebook, r3, n, dim, d3, width)


@triton.jit
def _quarter_of_query(
    codebook, q, v, d_query, log2_e, first,
    over_tau, scale, noise_scale, total, shift, target, of_target,
    noise, noise_row, mask, mask_row, row, rows, n, dim,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr, mixes: tl.constexpr,
    with_target: tl.constexpr, width: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """What 32 rows of the codebook add to the gradient of some queries."""
    lane = tl.arange(0, QUARTER)
    c = _load(codebook, lane + first, n, dim, width, precision)
    column = (lane + first)[None, :]
    score = tl.dot(q, tl.trans(c), input_precision=precision)
    x = _perturbed(
        score, log2_e, scale[:, None], noise_scale[:, None], noise, noise_row, mask, mask_row,
        row[:, None], rows, column, n, noisy, given, masked,
    )  # fmt: skip
    inner = score
    if mixes:
        inner = tl.dot(v, tl.trans(c), input_precision=precision)
    _, delta = _slopes(
        x, inner, total[:, None], shift[:, None], over_tau[:, None], column, target[:, None],
        of_target[:, None], mixes, with_target,
    )  # fmt: skip
    return _add_product(delta, c, d_query, precision)


@triton.jit
def _backward_query(
    query, codebook, gradient, tau, beta, keys,
    noise, noise_group, noise_row, mask, mask_group, mask_row,
    lse, offset, of_lse, targets, d_queries,
    rows, n, dim, each,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr, mixes: tl.constexpr,
    with_target: tl.constexpr, height: tl.constexpr, width: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    part, group = tl.program_id(1), tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * height + tl.arange(0, height)
    query += group * rows * dim
    gradient += group * rows * dim
    codebook += group * n * dim
    noise += group * noise_group
    mask += group * mask_group
    d_queries += (part * tl.num_programs(2) + group) * rows * dim
    over_tau, scale, noise_scale, key, total, shift, target, of_target = _of_rows(
        tau, beta, keys, lse, offset, of_lse, targets, group * rows + row, row < rows, with_target
    )
    q = _load(query, row, rows, dim, width, precision)
    v = q
    if mixes:
        v = _load(gradient, row, rows, dim, width, precision)
    lane = tl.arange(0, QUARTER)
    d_query = tl.zeros([height, width], tl.float32)
    for start in range(part * each, tl.minimum((part + 1) * each, n), GROUP):
        e0, e1, e2, e3 = _noise(key[:, None], start // 4 + lane[None, :], noisy, given)
        d_query = _quarter_of_query(
            codebook, q, v, d_query, e0, start,
            over_tau, scale, noise_scale, total, shift, target, of_target,
            noise, noise_row, mask, mask_row, row, rows, n, dim,
            noisy, given, masked, mixes, with_target, width, precision,
        )  # fmt: skip
        d_query = _quarter_of_query(
            codebook, q, v, d_query, e1, start + QUARTER,
            over_tau, scale, noise_scale, total, shift, target, of_target,
            noise, noise_row, mask, mask_row, row, rows, n, dim,
            noisy, given, masked, mixes, with_target, width, precision,
        )  # fmt: skip
        d_query = _quarter_of_query(
            codebook, q, v, d_query, e2, start + 2 * QUARTER,
            over_tau, scale, noise_scale, total, shift, target, of_target,
            noise, noise_row, mask, mask_row, row, rows, n, dim,
            noisy, given, masked, mixes, with_target, width, precision,
        )  # fmt: skip
        d_query = _quarter_of_query(
            codebook, q, v, d_query, e3, start + 3 * QUARTER,
            over_tau, scale, noise_scale, total, shift, target, of_target,
            noise, noise_row, mask, mask_row, row, rows, n, dim,
            noisy, given, masked, mixes, with_target, width, precision,
        )  # fmt: skip
    _store(d_queries, row, rows, dim, d_query, width)


def forward(p: Any, *, mixes: bool, chooses: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The mixture (or an empty tensor), log-sum-exp, argmax and maximum of a, for every row."""
    groups, rows, n, dim = p.shape
    options = _options(p)
    tiles = triton.cdiv(rows, options["height"])
    parts, each = _parts(n, tiles * groups)
    new = p.tau.new_empty
    tops, totals = new(parts, groups, rows), new(parts, groups, rows)
    indices = new(parts if chooses else 0, groups, rows, dtype=torch.int32)
    mixtures = new(parts if mixes else 0, groups, rows, dim)
    index = torch.full_like(p.keys, -1) if not chooses else torch.empty_like(p.keys)
    mixture = new(groups, rows, dim if mixes else 0)
    lse, top = new(groups, rows), new(groups, rows)
    if groups * rows:
        _forward[tiles, parts, groups](
            *_common(p), tops, totals, indices, mixtures, rows, n, dim, each,
            mixes=mixes, chooses=chooses, **options,
        )  # fmt: skip
        _combine[(groups * rows,)](
            *(tops, totals, indices, mixtures, mixture, lse, index, top),
            *(groups * rows, dim, parts),
            mixes=mixes, chooses=chooses, most=triton.next_power_of_2(parts),
            width=options["width"], num_warps=1,
        )  # fmt: skip
    return mixture, lse, index, top


def backward(
    p: Any,
    mixture: Tensor,
    lse: Tensor,
    of_mixture: Tensor | None,
    of_lse: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Gradients of query and codebook; those of tau and beta are left to ``mixing.blockwise``."""
    groups, rows, n, dim = p.shape
    options = _options(p)
    mixes = of_mixture is not None
    offset = offsets(p, of_mixture, mixture, of_lse)
    v = p.query if of_mixture is None else of_mixture.to(p.query.dtype)
    at_target = None if p.target is None else of_lse
    targets = offset if at_target is None else p.target.contiguous()
    of_target = offset if at_target is None else at_target.contiguous()
    tiles = triton.cdiv(rows, options["height"])
    parts, each = _parts(n, tiles * groups)
    d_queries = p.tau.new_empty(parts, groups, rows, dim)
    d_codebook = torch.empty_like(p.codebook, memory_format=torch.contiguous_format)
    if not groups * rows:
        return torch.zeros_like(p.query), d_codebook.zero_()
    query, codebook, *others = _common(p)
    given = query, codebook, v.contiguous(), *others, lse.contiguous(), offset, of_target, targets
    flags = {"mixes": mixes, "with_target": at_target is not None}
    _backward_query[tiles, parts, groups](*given, d_queries, rows, n, dim, each, **flags, **options)
    with_z = mixes and p.index is None
    _backward_codebook[triton.cdiv(n, GROUP.value), groups](
        *given, d_codebook, rows, n, dim, with_z=with_z, **flags, **_options_of_codebook(p)
    )
    return d_queries.sum(0).to(p.query.dtype), d_codebook


def _common(p: Any) -> tuple[Any, ...]:
    return (
        *(p.query.contiguous(), p.codebook.contiguous()),
        *(p.tau.contiguous(), p.beta.contiguous(), p.keys.contiguous()),
        *strided(p.noise, p.tau),
        *strided(as_bytes(p.mask), p.tau),
    )


def _options(p: Any) -> dict[str, Any]:
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


def _options_of_codebook(p: Any) -> dict[str, Any]:
    """For the kernel whose programs have rows of the codebook, and their gradient in registers."""
    options = _options(p)
    return {**options, **({"num_warps": 8} if options["width"] > 64 else {"height": 32})}


def _parts(n: int, others: int) -> tuple[int, int]:
    """In how many parts to cut the codebook, so that there is enough to do at the same time, and
    how many rows each of them has."""
    whole = triton.cdiv(n, GROUP.value)
    parts = min(whole, _PARTS, triton.cdiv(_PROGRAMS, max(1, others)))
    each = triton.cdiv(whole, parts)
    return triton.cdiv(whole, each), each * GROUP.value
