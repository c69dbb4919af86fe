"""The backward pass of ``_codebook_stream``: one kernel for the gradient of each of its inputs."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ._codebook_blocks_backward import offsets
from ._codebook_stream import (
    add_product,
    load_rows,
    noise_of,
    options_of,
    parts_of,
    perturbed,
    place_of,
    rounded,
    tensors_of,
)
from ._noise import GROUP, LN_2, LOG2_E, QUARTER


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
def _of_rows(
    tau, beta, keys, lse, offset, of_lse, targets, low, at, real, with_target: tl.constexpr
):  # fmt: skip
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
        target = tl.where(target >= 0, target + low, -1)
        of_target = tl.load(of_lse + at, real, 0.0)
    return over_tau, scale, noise_scale, key, total, shift, target, of_target


@triton.jit
def _quarter_of_codebook(
    c, q, v, d_codes, log2_e, first,
    over_tau, scale, noise_scale, total, shift, target, of_target,
    noise, noise_row, mask, mask_row, row, rows, low, end,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr, mixes: tl.constexpr,
    with_z: tl.constexpr, with_target: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """What some queries add to the gradient of 32 rows; logits here are [codebook, query]."""
    column = (tl.arange(0, QUARTER) + first)[:, None]
    score = tl.dot(c, tl.trans(q), input_precision=precision)
    x = perturbed(
        score, log2_e, scale[None, :], noise_scale[None, :], noise, noise_row, mask, mask_row,
        row[None, :], rows, column, low, end, noisy, given, masked,
    )  # fmt: skip
    inner = score
    if mixes:
        inner = tl.dot(c, tl.trans(v), input_precision=precision)
    z, delta = _slopes(
        x, inner, total[None, :], shift[None, :], over_tau[None, :], column, target[None, :],
        of_target[None, :], mixes, with_target,
    )  # fmt: skip
    d_codes = add_product(delta, q, d_codes, precision)
    if with_z:
        d_codes = add_product(z, v, d_codes, precision)
    return d_codes


@triton.jit
def _store(target, row, low, rows, dim, value, width: tl.constexpr):
    d = tl.arange(0, width)[None, :]
    inside = (row[:, None] >= low) & (row[:, None] < rows) & (d < dim)
    place = target + row[:, None].to(tl.int64) * dim + d
    tl.store(place, value.to(target.dtype.element_ty), inside)


@triton.jit
def _backward_codebook(
    query, codebook, gradient, tau, beta, keys,
    noise, noise_group, noise_row, mask, mask_group, mask_row,
    lse, offset, of_lse, targets, d_codebook,
    rows, n, dim, low, base,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr, mixes: tl.constexpr,
    with_z: tl.constexpr, with_target: tl.constexpr,
    height: tl.constexpr, width: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    start, group = tl.program_id(0) * GROUP, tl.program_id(1).to(tl.int64)
    query += group * rows * dim
    gradient += group * rows * dim
    codebook += (group * n - low) * dim
    d_codebook += (group * n - low) * dim
    noise += group * noise_group - low
    mask += group * mask_group - low
    end = n + low
    lane = tl.arange(0, QUARTER)
    r0, r1 = lane + start, lane + (start + QUARTER)
    r2, r3 = lane + (start + 2 * QUARTER), lane + (start + 3 * QUARTER)
    c0 = load_rows(codebook, r0, low, end, dim, width, precision)
    c1 = load_rows(codebook, r1, low, end, dim, width, precision)
    c2 = load_rows(codebook, r2, low, end, dim, width, precision)
    c3 = load_rows(codebook, r3, low, end, dim, width, precision)
    d0 = tl.zeros([QUARTER, width], tl.float32)
    d1 = tl.zeros([QUARTER, width], tl.float32)
    d2 = tl.zeros([QUARTER, width], tl.float32)
    d3 = tl.zeros([QUARTER, width], tl.float32)
    for first in range(0, rows, height):
        row = first + tl.arange(0, height)
        over_tau, scale, noise_scale, key, total, shift, target, of_target = _of_rows(
            tau, beta, keys, lse, offset, of_lse, targets, low, group * rows + row, row < rows,
            with_target,
        )  # fmt: skip
        q = load_rows(query, row, 0, rows, dim, width, precision)
        v = q
        if mixes:
            v = load_rows(gradient, row, 0, rows, dim, width, precision)
        e0, e1, e2, e3 = noise_of(key[None, :], ((base + start) // 4 + lane)[:, None], noisy, given)
        d0 = _quarter_of_codebook(
            c0, q, v, d0, e0, start,
            over_tau, scale, noise_scale, total, shift, target, of_target,
            noise, noise_row, mask, mask_row, row, rows, low, end,
            noisy, given, masked, mixes, with_z, with_target, precision,
        )  # fmt: skip
        d1 = _quarter_of_codebook(
            c1, q, v, d1, e1, start + QUARTER,
            over_tau, scale, noise_scale, total, shift, target, of_target,
            noise, noise_row, mask, mask_row, row, rows, low, end,
            noisy, given, masked, mixes, with_z, with_target, precision,
        )  # fmt: skip
        d2 = _quarter_of_codebook(
            c2, q, v, d2, e2, start + 2 * QUARTER,
            over_tau, scale, noise_scale, total, shift, target, of_target,
            noise, noise_row, mask, mask_row, row, rows, low, end,
            noisy, given, masked, mixes, with_z, with_target, precision,
        )  # fmt: skip
        d3 = _quarter_of_codebook(
            c3, q, v, d3, e3, start + 3 * QUARTER,
            over_tau, scale, noise_scale, total, shift, target, of_target,
            noise, noise_row, mask, mask_row, row, rows, low, end,
            noisy, given, masked, mixes, with_z, with_target, precision,
        )  # fmt: skip
    _store(d_codebook, r0, low, end, dim, d0, width)
    _store(d_codebook, r1, low, end, dim, d1, width)
    _store(d_codebook, r2, low, end, dim, d2, width)
    _store(d_codebook, r3, low, end, dim, d3, width)


@triton.jit
def _quarter_of_query(
    codebook, q, v, d_query, excess, log2_e, first,
    over_tau, scale, noise_scale, total, shift, target, of_target,
    noise, noise_row, mask, mask_row, row, rows, low, end, dim,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr, mixes: tl.constexpr,
    with_target: tl.constexpr, adds_up: tl.constexpr, width: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """What 32 rows of the codebook add to the gradient of some queries, and to the excess."""
    lane = tl.arange(0, QUARTER)
    c = load_rows(codebook, lane + first, low, end, dim, width, precision)
    column = (lane + first)[None, :]
    score = tl.dot(q, tl.trans(c), input_precision=precision)
    x = perturbed(
        score, log2_e, scale[:, None], noise_scale[:, None], noise, noise_row, mask, mask_row,
        row[:, None], rows, column, low, end, noisy, given, masked,
    )  # fmt: skip
    inner = score
    if mixes:
        inner = tl.dot(v, tl.trans(c), input_precision=precision)
    _, delta = _slopes(
        x, inner, total[:, None], shift[:, None], over_tau[:, None], column, target[:, None],
        of_target[:, None], mixes, with_target,
    )  # fmt: skip
    delta = rounded(delta.to(c.dtype), precision)
    d_query = tl.dot(delta, c, d_query, input_precision=precision)
    if adds_up:
        excess += tl.sum(delta.to(tl.float32), 1)
    return d_query, excess


@triton.jit
def _backward_query(
    query, codebook, gradient, tau, beta, keys,
    noise, noise_group, noise_row, mask, mask_group, mask_row,
    lse, offset, of_lse, targets, d_queries, sums,
    rows, n, dim, low, base, each,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr, mixes: tl.constexpr,
    with_target: tl.constexpr, adds_up: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    part, group = tl.program_id(1), tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * height + tl.arange(0, height)
    query += group * rows * dim
    gradient += group * rows * dim
    codebook += (group * n - low) * dim
    noise += group * noise_group - low
    mask += group * mask_group - low
    end = n + low
    place = (part * tl.num_programs(2) + group) * rows
    d_queries += place * dim
    over_tau, scale, noise_scale, key, total, shift, target, of_target = _of_rows(
        tau, beta, keys, lse, offset, of_lse, targets, low, group * rows + row, row < rows,
        with_target,
    )  # fmt: skip
    q = load_rows(query, row, 0, rows, dim, width, precision)
    v = q
    if mixes:
        v = load_rows(gradient, row, 0, rows, dim, width, precision)
    lane = tl.arange(0, QUARTER)
    d_query = tl.zeros([height, width], tl.float32)
    excess = tl.zeros([height], tl.float32)
    for start in range(part * each, tl.minimum((part + 1) * each, end), GROUP):
        e0, e1, e2, e3 = noise_of(key[:, None], (base + start) // 4 + lane[None, :], noisy, given)
        d_query, excess = _quarter_of_query(
            codebook, q, v, d_query, excess, e0, start,
            over_tau, scale, noise_scale, total, shift, target, of_target,
            noise, noise_row, mask, mask_row, row, rows, low, end, dim,
            noisy, given, masked, mixes, with_target, adds_up, width, precision,
        )  # fmt: skip
        d_query, excess = _quarter_of_query(
            codebook, q, v, d_query, excess, e1, start + QUARTER,
            over_tau, scale, noise_scale, total, shift, target, of_target,
            noise, noise_row, mask, mask_row, row, rows, low, end, dim,
            noisy, given, masked, mixes, with_target, adds_up, width, precision,
        )  # fmt: skip
        d_query, excess = _quarter_of_query(
            codebook, q, v, d_query, excess, e2, start + 2 * QUARTER,
            over_tau, scale, noise_scale, total, shift, target, of_target,
            noise, noise_row, mask, mask_row, row, rows, low, end, dim,
            noisy, given, masked, mixes, with_target, adds_up, width, precision,
        )  # fmt: skip
        d_query, excess = _quarter_of_query(
            codebook, q, v, d_query, excess, e3, start + 3 * QUARTER,
            over_tau, scale, noise_scale, total, shift, target, of_target,
            noise, noise_row, mask, mask_row, row, rows, low, end, dim,
            noisy, given, masked, mixes, with_target, adds_up, width, precision,
        )  # fmt: skip
    _store(d_queries, row, 0, rows, dim, d_query, width)
    if adds_up:
        tl.store(sums + place + row, excess, row < rows)


def backward(
    p: Any,
    mixture: Tensor,
    lse: Tensor,
    of_mixture: Tensor | None,
    of_lse: Tensor | None,
    inner: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradients of query and codebook; those of tau and beta are left to ``codebook._blockwise``.

    Where there is only a mixture, deltas should add up to 0; what they do add up to, times the
    mixture, is taken off the gradient of the query. Where ``inner`` is given, it is <v, m>, and the
    mixture may be any vector near m.
    """
    groups, rows, n, dim = p.shape
    options = options_of(p)
    mixes = of_mixture is not None
    offset = offsets(p, of_mixture if inner is None else None, mixture, of_lse)
    if inner is not None:
        offset -= inner
    v = p.query if of_mixture is None else of_mixture.to(p.query.dtype)
    at_target = None if p.target is None else of_lse
    targets = offset if at_target is None else p.target.contiguous()
    of_target = offset if at_target is None else at_target.contiguous()
    tiles = triton.cdiv(rows, options["height"])
    low, base = place_of(p)
    parts, each = parts_of(n + low, tiles * groups)
    d_queries = p.tau.new_empty(parts, groups, rows, dim)
    adds_up = mixes and of_lse is None
    sums = p.tau.new_empty(parts if adds_up else 0, groups, rows)
    d_codebook = torch.empty_like(p.codebook, memory_format=torch.contiguous_format)
    if not groups * rows:
        return torch.zeros_like(p.query), d_codebook.zero_()
    query, codebook, *others = tensors_of(p)
    given = query, codebook, v.contiguous(), *others, lse.contiguous(), offset, of_target, targets
    flags = {"mixes": mixes, "with_target": at_target is not None}
    _backward_query[tiles, parts, groups](
        *given, d_queries, sums, rows, n, dim, low, base, each, adds_up=adds_up, **flags, **options
    )
    with_z = mixes and p.index is None
    _backward_codebook[triton.cdiv(n + low, GROUP.value), groups](
        *given,
        d_codebook,
        rows,
        n,
        dim,
        low,
        base,
        with_z=with_z,
        **flags,
        **_options_of_codebook(p),
    )
    d_query = d_queries.sum(0)
    if adds_up:
        d_query -= sums.sum(0).unsqueeze(-1) * mixture
    return d_query.to(p.gradient_dtype), d_codebook


def _options_of_codebook(p: Any) -> dict[str, Any]:
    """For the kernel whose programs have rows of the codebook, and their gradient in registers."""
    options = options_of(p)
    return {**options, **({"num_warps": 8} if options["width"] > 64 else {"height": 32})}
