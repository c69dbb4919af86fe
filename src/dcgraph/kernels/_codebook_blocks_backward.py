"""The steps of ``_codebook_blocks`` backward, where every entry of a block stands for itself."""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ._noise import (
    GROUP,
    LN_2,
    LOG2_E,
    QUARTER,
    TILE,
    WARPS,
    as_bytes,
    dial_and_strides,
    dial_of,
    perturbed_tile,
    scales,
    strided,
)

_VECTOR = 8  # entries that a thread reads at once, where rows begin at a multiple of as many


@triton.jit
def _inner(
    gradient, value, of_lse, offset, dim,
    mixes: tl.constexpr, with_lse: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """of_lse - <gradient, value> of a row."""
    at = tl.program_id(0).to(tl.int64)
    result = 0.0
    if with_lse:
        result += tl.load(of_lse + at)
    if mixes:
        d = tl.arange(0, width)
        g = tl.load(gradient + at * dim + d, d < dim, 0.0).to(tl.float32)
        v = tl.load(value + at * dim + d, d < dim, 0.0).to(tl.float32)
        result -= tl.sum(g * v, 0)
    tl.store(offset + at, result)


@triton.jit
def _delta(
    x, scores, pairs, column, first, last, lse, offset, over_tau, above, pairs_above,
    target, of_target,
    mixes: tl.constexpr, writes_z: tl.constexpr, with_target: tl.constexpr,
):  # fmt: skip
    """delta in the place of S, and z in that of <v, C>; returns delta as it is stored."""
    inside = (column >= first) & (column < last)
    z = tl.exp2(x - lse)
    slope = offset
    if mixes:
        slope += tl.load(scores + above + (column - first), inside, 0.0)
    delta = z * slope
    if with_target:
        delta -= tl.where(column == target, of_target, 0.0)
    if writes_z:
        tl.store(pairs + pairs_above + (column - first), z.to(pairs.dtype.element_ty), inside)
    stored = (delta * over_tau).to(pairs.dtype.element_ty)
    tl.store(pairs + (column - first), stored, inside)
    return tl.where(inside, stored.to(tl.float32), 0.0)


@triton.jit
def _differentiate(
    scores, scores_group, scores_row, pairs, pairs_group, pairs_row,
    noise, noise_group, noise_row, mask, mask_group, mask_row,
    tau, tau_group, tau_row, beta, beta_group, beta_row,
    keys, lse, offset, of_lse, targets, sums,
    rows, first, new, last, before,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr, mixes: tl.constexpr,
    writes_z: tl.constexpr, with_target: tl.constexpr, adds_up: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64)
    group, row = at // rows, at % rows
    scores += group * scores_group + row * scores_row
    pairs += group * pairs_group + row * pairs_row
    noise += group * noise_group + row * noise_row
    mask += group * mask_group + row * mask_row
    above, pairs_above = rows * scores_row, rows * pairs_row
    scale, noise_scale = scales(tau, tau_group, tau_row, beta, beta_group, beta_row, group, row)
    over_tau = scale * LN_2
    total = tl.load(lse + at) * LOG2_E
    total = tl.where(total == float("-inf"), 0.0, total)
    shift = tl.load(offset + at)
    target, of_target = -1, 0.0
    if with_target:
        target = tl.load(targets + at).to(tl.int32) + before
        target = tl.where(target >= new, target, -1)
        of_target = tl.load(of_lse + at)
    start = first // GROUP * GROUP + tl.program_id(1) * tile
    c0, x0, x1, x2, x3 = perturbed_tile(
        scores, noise, mask, start, tl.load(keys + at), first, new, last, before,
        scale, noise_scale, noisy, given, masked, tile,
    )  # fmt: skip
    c1, c2, c3 = c0 + QUARTER, c0 + 2 * QUARTER, c0 + 3 * QUARTER
    d0 = _delta(x0, scores, pairs, c0, first, last, total, shift, over_tau, above, pairs_above,
                target, of_target, mixes, writes_z, with_target)  # fmt: skip
    d1 = _delta(x1, scores, pairs, c1, first, last, total, shift, over_tau, above, pairs_above,
                target, of_target, mixes, writes_z, with_target)  # fmt: skip
    d2 = _delta(x2, scores, pairs, c2, first, last, total, shift, over_tau, above, pairs_above,
                target, of_target, mixes, writes_z, with_target)  # fmt: skip
    d3 = _delta(x3, scores, pairs, c3, first, last, total, shift, over_tau, above, pairs_above,
                target, of_target, mixes, writes_z, with_target)  # fmt: skip
    if adds_up:
        place = at * tl.num_programs(1) + tl.program_id(1)
        tl.store(sums + place, tl.sum((d0 + d1) + (d2 + d3), 0))


@triton.jit
def _factor(bases, bases_stride, lse, at):
    """z / w of a row."""
    total = tl.load(lse + at) * LOG2_E
    total = tl.where(total == float("-inf"), 0.0, total)
    return tl.exp2(tl.load(bases + at * bases_stride) - total)


@triton.jit
def _load_kept(
    products, products_group, products_row, weights, weights_group, weights_row,
    group, row, width, unit: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    """Where products of a row stand, whether they are any, and they and the weights themselves.

    Strides and the width are counted in units, so that a unit is loaded and stored as one.
    """
    column = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = column // unit < width
    products += (group * products_group + row * products_row) * unit + column
    weights += (group * weights_group + row * weights_row) * unit + column
    w = tl.load(weights, inside, 0.0).to(tl.float32)
    return products, inside, tl.load(products, inside, 0.0).to(tl.float32), w


@triton.jit
def _sums_kept(
    products, products_group, products_row, weights, weights_group, weights_row,
    bases, bases_stride, lse, sums, rows, width, unit: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64)
    _, _, product, w = _load_kept(
        products, products_group, products_row, weights, weights_group, weights_row,
        at // rows, at % rows, width, unit, tile,
    )  # fmt: skip
    factor = _factor(bases, bases_stride, lse, at)
    tiles = tl.num_programs(1)
    sums += 2 * at * tiles + tl.program_id(1)
    tl.store(sums, tl.sum(w * product, 0) * factor)
    tl.store(sums + tiles, tl.sum(w, 0) * factor)


@triton.jit
def _differentiate_kept(
    delta, delta_group, delta_row, weights, weights_group, weights_row, bases, bases_stride,
    tau, tau_group, tau_row, lse, offset, sums, rows, width,
    unit: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64)
    group, row = at // rows, at % rows
    delta, inside, product, w = _load_kept(
        delta, delta_group, delta_row, weights, weights_group, weights_row,
        group, row, width, unit, tile,
    )  # fmt: skip
    factor = _factor(bases, bases_stride, lse, at)
    factor /= dial_of(tau, tau_group, tau_row, group, row)
    result = (w * (product + tl.load(offset + at)) * factor).to(delta.dtype.element_ty)
    tl.store(delta, result, inside)
    total = tl.sum(tl.where(inside, result.to(tl.float32), 0.0), 0)
    tl.store(sums + at * tl.num_programs(1) + tl.program_id(1), total)


@triton.jit
def _excess(sums, tiles, at, room: tl.constexpr):
    """What the deltas of a row add up to."""
    k = tl.arange(0, room)
    return tl.sum(tl.load(sums + at * tiles + k, k < tiles, 0.0), 0)


@triton.jit
def _stack_query_and_v(
    query, v, sums, tiles, out, bases, bases_stride, lse, rows, dim,
    width: tl.constexpr, room: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64)
    group, row = at // rows, at % rows
    out += (2 * group * rows + row) * dim
    d = tl.arange(0, width)
    q = tl.load(query + at * dim + d, d < dim, 0.0)
    tl.store(out + d, q, d < dim)
    scaled = tl.load(v + at * dim + d, d < dim, 0.0).to(tl.float32)
    scaled -= _excess(sums, tiles, at, room) * q.to(tl.float32)
    scaled *= _factor(bases, bases_stride, lse, at)
    tl.store(out + rows * dim + d, scaled.to(out.dtype.element_ty), d < dim)


@triton.jit
def _subtract_excess(
    d_query, sums, tiles, mixture, out, dim, width: tl.constexpr, room: tl.constexpr
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, width)
    m = tl.load(mixture + at * dim + d, d < dim, 0.0).to(tl.float32)
    excess = _excess(sums, tiles, at, room)
    value = tl.load(d_query + at * dim + d, d < dim, 0.0) - excess * m
    tl.store(out + at * dim + d, value.to(out.dtype.element_ty), d < dim)


def offsets(p: Any, of_mixture: Tensor | None, mixture: Tensor, of_lse: Tensor | None) -> Tensor:
    """of_lse - <of_mixture, mixture> of every row."""
    groups, rows, _, dim = p.shape
    out = p.tau.new_empty(groups, rows)
    if out.numel():
        _inner[(groups * rows,)](
            out if of_mixture is None else of_mixture.contiguous(), mixture.contiguous(),
            out if of_lse is None else of_lse.contiguous(), out, dim,
            mixes=of_mixture is not None, with_lse=of_lse is not None,
            width=triton.next_power_of_2(dim), num_warps=WARPS,
        )  # fmt: skip
    return out


def differentiate(
    p: Any,
    part: Any,
    scores: Tensor,
    pairs: Tensor,
    lse: Tensor,
    offset: Tensor,
    of_lse: Tensor | None,
    learns_dials: bool,
) -> tuple[Tensor, None]:
    """From S over <v, C> to delta over z.

    Returns the sum of delta of every row, in parts, if there is only a mixture.
    """
    groups, rows = p.shape[:2]
    first, new, last = (p.first + column for column in (part.first, part.new, part.last))
    begin = first // GROUP.value * GROUP.value
    tiles = triton.cdiv(last - begin, TILE)
    sums = p.tau.new_empty(groups, rows, tiles if of_lse is None else 0)
    if not groups * rows:
        return sums, None
    at_target = None if p.target is None else of_lse
    _differentiate[groups * rows, tiles](
        *(*strided(scores), *strided(pairs), *strided(p.noise, scores)),
        *strided(as_bytes(p.mask), scores),
        *(*dial_and_strides(p.tau), *dial_and_strides(p.beta), p.keys.contiguous()),
        *(lse.contiguous(), offset, offset if at_target is None else at_target.contiguous()),
        *(offset if at_target is None else p.target.contiguous(), sums),
        *(rows, first, new, last, p.first),
        noisy=p.noisy, given=p.noise is not None, masked=p.mask is not None,
        mixes=scores.shape[1] > rows, writes_z=pairs.shape[1] > rows,
        with_target=at_target is not None, adds_up=of_lse is None, tile=TILE, num_warps=WARPS,
    )  # fmt: skip
    return sums, None


def _in_units(products: Tensor, weights: Tensor) -> tuple[tuple[Any, ...], int, int]:
    """Both with their strides, then the width, all of it in units; and the unit."""
    lengths = (*products.stride()[:2], *weights.stride()[:2], weights.shape[-1])
    unit = math.gcd(_VECTOR, *lengths)
    products_group, products_row, weights_group, weights_row, width = (n // unit for n in lengths)
    both = (products, products_group, products_row, weights, weights_group, weights_row)
    return both, width, unit


def sums_kept(p: Any, products: Tensor, weights: Tensor, base: Tensor, lse: Tensor) -> Tensor:
    """The sums of z <v, C> and of z of every row, with the weights w = 2^(x - base) of before.

    The last dimension has parts of them, the one before it the two.
    """
    groups, rows = p.shape[:2]
    both, width, unit = _in_units(products, weights)
    tiles = triton.cdiv(weights.shape[-1], TILE)
    sums = p.tau.new_empty(groups, rows, 2, tiles)
    _sums_kept[groups * rows, tiles](
        *(*both, base, base.stride(1), lse.contiguous(), sums, rows, width),
        unit=unit, tile=TILE, num_warps=WARPS,
    )  # fmt: skip
    return sums


def differentiate_kept(
    p: Any, delta: Tensor, weights: Tensor, base: Tensor, lse: Tensor, offset: Tensor
) -> Tensor:
    """From <v, C> to delta in its place, with the weights w = 2^(x - base) of before.

    Returns the sum of delta of every row, in parts.
    """
    groups, rows = p.shape[:2]
    both, width, unit = _in_units(delta, weights)
    tiles = triton.cdiv(weights.shape[-1], TILE)
    sums = p.tau.new_empty(groups, rows, tiles)
    _differentiate_kept[groups * rows, tiles](
        *(*both, base, base.stride(1), *dial_and_strides(p.tau)),
        *(lse.contiguous(), offset, sums, rows, width),
        unit=unit, tile=TILE, num_warps=WARPS,
    )  # fmt: skip
    return sums


def stack_query_and_v(query: Tensor, v: Tensor, sums: Tensor, base: Tensor, lse: Tensor) -> Tensor:
    """q over f (v - e q), which delta over w is multiplied with for the gradient of the codebook.

    e, the excess of a row, is the sum of its deltas, which should be 0; f is z / w.
    """
    groups, rows, dim = query.shape
    out = query.new_empty(groups, 2 * rows, dim)
    tiles = sums.shape[-1]
    _stack_query_and_v[(groups * rows,)](
        *(query, v, sums, tiles, out, base, base.stride(1), lse.contiguous(), rows, dim),
        width=triton.next_power_of_2(dim), room=triton.next_power_of_2(tiles), num_warps=WARPS,
    )  # fmt: skip
    return out


def subtract_excess(d_query: Tensor, sums: Tensor, mixture: Tensor, dtype: torch.dtype) -> Tensor:
    """dq - e m in that dtype, with the excess e of every row, see :func:`stack_query_and_v`."""
    groups, rows, dim = d_query.shape
    out = torch.empty_like(d_query, dtype=dtype)
    if not out.numel():
        return out
    tiles = sums.shape[-1]
    _subtract_excess[(groups * rows,)](
        *(d_query, sums, tiles, mixture.contiguous(), out, dim),
        width=triton.next_power_of_2(dim), room=triton.next_power_of_2(tiles), num_warps=WARPS,
    )  # fmt: skip
    return out
