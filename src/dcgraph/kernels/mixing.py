"""What happens to a block of logits between the matrix products of ``mixing.blockwise``, fused.

Forward, each row is one program, which goes over it once: weights 2^(x - base) need a base near the
maximum, not the maximum itself, so that the maximum of the first entries will do but for rows that
rise by 2^48 after them. Such a row is done again, with its maximum; so its scores are not
overwritten. Backward every entry stands for itself. Noise is drawn inside, as in
``dcgraph.counters``: a draw has four words, for columns 32 apart, so that no number has to change
its thread.

Inside, a is counted in units of log 2, which the hardware takes powers and logarithms of.

The twin of the kernels is ``mixing.steps_by_torch``.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .dropout import drop, logits_at  # noqa: F401  # steps, too
from .gumbel import log2_exponential

IN_PLACE = False  # whether the weights may stand where the scores do

_TILE, _WARPS = 2048, 4
_TILE_OF_ROW, _WARPS_OF_ROW = 2048, 8  # where a program has a whole row
_VECTOR = 8  # entries that a thread reads at once, where rows begin at a multiple of as many
_QUARTER = tl.constexpr(32)
_GROUP = tl.constexpr(128)
_ROUNDS = tl.constexpr(7)
_LOG2_E = tl.constexpr(1.4426950408889634)
_LN_2 = tl.constexpr(0.6931471805599453)
_LOWEST = tl.constexpr(-1e30)  # instead of -inf, whose difference with itself is NaN
_NOWHERE = tl.constexpr(2**31 - 1)
_FAR = tl.constexpr(48.0)  # above its base a row may rise to weights of 2^48; sums stay finite


@triton.jit
def log2_noise(key, draws):
    """-log2(e) G of the four columns of each draw, as ``counters.gumbel_of_bits`` has it."""
    zero = tl.zeros_like(draws).to(tl.uint32)
    a, b, c, d = tl.philox(key, draws.to(tl.uint32), zero, zero, zero, _ROUNDS)
    return (
        log2_exponential(a, b),
        log2_exponential(b, c),
        log2_exponential(c, d),
        log2_exponential(d, a),
    )


@triton.jit
def _first_columns(start, tile: tl.constexpr):
    """The first of the four columns of each draw, and the number of the draw."""
    lane = tl.arange(0, tile // 4)
    column = start + lane // _QUARTER * _GROUP + lane % _QUARTER
    return column, start // 4 + lane


@triton.jit
def _perturbed(
    scores, noise, mask, column, log2_e, first, new, last, scale, noise_scale,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr,
):  # fmt: skip
    """log2(e) a of some columns; -inf where there is nothing to choose."""
    real = (column >= new) & (column < last)
    x = tl.load(scores + (column - first), real, 0.0) * scale
    if noisy:
        if given:
            log2_e = tl.load(noise + column, real, 0.0) * -_LOG2_E
        x += noise_scale * log2_e
    if masked:
        real = real & (tl.load(mask + column, real, 0) != 0)
    return tl.where(real, x, float("-inf"))


@triton.jit
def _perturbed_tile(
    scores, noise, mask, start, key, first, new, last, scale, noise_scale,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    """The four quarters of a tile, and the columns of the first of them."""
    c0, draws = _first_columns(start, tile)
    e0 = tl.zeros([tile // 4], tl.float32)
    e1, e2, e3 = e0, e0, e0
    if noisy and not given:
        e0, e1, e2, e3 = log2_noise(key, draws)
    c1, c2, c3 = c0 + _QUARTER, c0 + 2 * _QUARTER, c0 + 3 * _QUARTER
    return (
        c0,
        _perturbed(
            scores, noise, mask, c0, e0, first, new, last, scale, noise_scale, noisy, given, masked
        ),
        _perturbed(
            scores, noise, mask, c1, e1, first, new, last, scale, noise_scale, noisy, given, masked
        ),
        _perturbed(
            scores, noise, mask, c2, e2, first, new, last, scale, noise_scale, noisy, given, masked
        ),
        _perturbed(
            scores, noise, mask, c3, e3, first, new, last, scale, noise_scale, noisy, given, masked
        ),
    )


@triton.jit
def _dial(dial, dial_group, dial_row, group, row):
    """Of a row; one number for all of them has strides of 0."""
    return tl.load(dial + group * dial_group + row * dial_row)


@triton.jit
def _scales(tau, beta):
    scale = 1.0 / tau * _LOG2_E
    return scale, beta * scale * -_LN_2


@triton.jit
def _better(x, column, best, where):
    return tl.maximum(best, x), tl.where(x > best, column, where)


@triton.jit
def _put(target, column, x, first, last):
    inside = (column >= first) & (column < last)
    tl.store(target + (column - first), x.to(target.dtype.element_ty), inside)


@triton.jit
def _put_weight(target, column, x, first, last):
    """2^x as it is stored: a row is divided by the sum of these, and so is a mixture exactly."""
    weight = tl.exp2(x).to(target.dtype.element_ty)
    _put(target, column, weight, first, last)
    return weight.to(tl.float32)


@triton.jit
def _absorb(
    scores, scores_group, scores_row, weights, weights_group, weights_row,
    noise, noise_group, noise_row, mask, mask_group, mask_row,
    tau, tau_group, tau_row, beta, beta_group, beta_row,
    keys, tops, bases, totals, indices, mixture,
    rows, first, new, last, dim, parts, number,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr, mixes: tl.constexpr,
    chooses: tl.constexpr, fresh: tl.constexpr, tile: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """Weights 2^(x - base) from the scores S of a block; maximum, sum and argmax are kept."""
    at = tl.program_id(0).to(tl.int64)
    group, row = at // rows, at % rows
    scores += group * scores_group + row * scores_row
    weights += group * weights_group + row * weights_row
    noise += group * noise_group + row * noise_row
    mask += group * mask_group + row * mask_row
    scale, noise_scale = _scales(
        _dial(tau, tau_group, tau_row, group, row), _dial(beta, beta_group, beta_row, group, row)
    )
    key = tl.load(keys + at)
    begin = first // _GROUP * _GROUP
    lowest = tl.full([tile // 4], _LOWEST, tl.float32)
    best, sums = lowest, tl.zeros([tile // 4], tl.float32)
    where = tl.full([tile // 4], _NOWHERE, tl.int32)
    old_top = tl.max(lowest, 0)
    old_base = old_top
    if not fresh:
        old_top, old_base = tl.load(tops + at), tl.load(bases + at * parts + number - 1)
    base = old_base
    if mixes and fresh:
        _, x0, x1, x2, x3 = _perturbed_tile(
            scores, noise, mask, begin, key, first, new, last, scale, noise_scale,
            noisy, given, masked, tile,
        )  # fmt: skip
        base = tl.max(tl.maximum(lowest, tl.maximum(tl.maximum(x0, x1), tl.maximum(x2, x3))), 0)
    passes = 1
    while passes > 0:
        best, sums = lowest, tl.zeros([tile // 4], tl.float32)
        for start in range(begin, last, tile):
            c0, x0, x1, x2, x3 = _perturbed_tile(
                scores, noise, mask, start, key, first, new, last, scale, noise_scale,
                noisy, given, masked, tile,
            )  # fmt: skip
            c1, c2, c3 = c0 + _QUARTER, c0 + 2 * _QUARTER, c0 + 3 * _QUARTER
            before = best
            if chooses:
                best, where = _better(x0, c0, best, where)
                best, where = _better(x1, c1, best, where)
                best, where = _better(x2, c2, best, where)
                best, where = _better(x3, c3, best, where)
            else:
                best = tl.maximum(best, tl.maximum(tl.maximum(x0, x1), tl.maximum(x2, x3)))
            if mixes:
                w0 = _put_weight(weights, c0, x0 - base, first, last)
                w1 = _put_weight(weights, c1, x1 - base, first, last)
                w2 = _put_weight(weights, c2, x2 - base, first, last)
                w3 = _put_weight(weights, c3, x3 - base, first, last)
                sums += (w0 + w1) + (w2 + w3)
            else:
                new_sums = (tl.exp2(x0 - best) + tl.exp2(x1 - best)) + (
                    tl.exp2(x2 - best) + tl.exp2(x3 - best)
                )
                sums = sums * tl.exp2(before - best) + new_sums
        passes = 0
        if mixes:
            high = tl.max(best, 0)
            if high > base + _FAR:
                base = high
                passes = 1
    high = tl.max(best, 0)
    if not mixes:  # each lane has counted from its own maximum
        base = tl.maximum(high, old_base)
        sums *= tl.exp2(best - base)
    if chooses:
        place = tl.min(tl.where(best == high, where, _NOWHERE), 0)
        found = tl.where(place < _NOWHERE, place, -1)
        if not fresh:
            found = tl.where(high > old_top, found, tl.load(indices + at).to(tl.int32))
        tl.store(indices + at, found.to(tl.int64))
    total = tl.sum(sums, 0)
    if not fresh:
        factor = tl.exp2(old_base - base)
        total += tl.load(totals + at) * factor
        if mixes and factor != 1.0:
            d = tl.arange(0, width)
            so_far = tl.load(mixture + at * dim + d, d < dim, 0.0)
            tl.store(mixture + at * dim + d, so_far * factor, d < dim)
    tl.store(tops + at, tl.maximum(high, old_top))
    tl.store(bases + at * parts + number, base)
    tl.store(totals + at, total)


@triton.jit
def _finish(
    tops, bases, totals, mixture, lse, top_out, dim, parts,
    mixes: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    """Log-sum-exp and maximum of a row in natural units, and its mixture divided by the sum."""
    at = tl.program_id(0).to(tl.int64)
    total = tl.load(totals + at)
    top = tl.where(total == 0, float("-inf"), tl.load(tops + at) * _LN_2)
    divisor = tl.where(total == 0, 1.0, total)
    base = tl.where(total == 0, float("-inf"), tl.load(bases + at * parts + parts - 1) * _LN_2)
    tl.store(lse + at, base + tl.log2(divisor) * _LN_2)
    tl.store(top_out + at, tl.where(total == total, top, total))  # NaN stays visible
    if mixes:
        d = tl.arange(0, width)
        value = tl.load(mixture + at * dim + d, d < dim, 0.0) / divisor
        tl.store(mixture + at * dim + d, value, d < dim)


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
    """delta in the place of S, and z in that of <v, C>."""
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
    tl.store(pairs + (column - first), (delta * over_tau).to(pairs.dtype.element_ty), inside)


@triton.jit
def _differentiate(
    scores, scores_group, scores_row, pairs, pairs_group, pairs_row,
    noise, noise_group, noise_row, mask, mask_group, mask_row,
    tau, tau_group, tau_row, beta, beta_group, beta_row,
    keys, lse, offset, of_lse, targets,
    rows, first, new, last,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr, mixes: tl.constexpr,
    writes_z: tl.constexpr, with_target: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64)
    group, row = at // rows, at % rows
    scores += group * scores_group + row * scores_row
    pairs += group * pairs_group + row * pairs_row
    noise += group * noise_group + row * noise_row
    mask += group * mask_group + row * mask_row
    above, pairs_above = rows * scores_row, rows * pairs_row
    scale, noise_scale = _scales(
        _dial(tau, tau_group, tau_row, group, row), _dial(beta, beta_group, beta_row, group, row)
    )
    over_tau = scale * _LN_2
    total = tl.load(lse + at) * _LOG2_E
    total = tl.where(total == float("-inf"), 0.0, total)
    shift = tl.load(offset + at)
    target, of_target = -1, 0.0
    if with_target:
        target = tl.load(targets + at).to(tl.int32)
        target = tl.where(target >= new, target, -1)
        of_target = tl.load(of_lse + at)
    start = first // _GROUP * _GROUP + tl.program_id(1) * tile
    c0, x0, x1, x2, x3 = _perturbed_tile(
        scores, noise, mask, start, tl.load(keys + at), first, new, last, scale, noise_scale,
        noisy, given, masked, tile,
    )  # fmt: skip
    c1, c2, c3 = c0 + _QUARTER, c0 + 2 * _QUARTER, c0 + 3 * _QUARTER
    _delta(x0, scores, pairs, c0, first, last, total, shift, over_tau, above, pairs_above,
           target, of_target, mixes, writes_z, with_target)  # fmt: skip
    _delta(x1, scores, pairs, c1, first, last, total, shift, over_tau, above, pairs_above,
           target, of_target, mixes, writes_z, with_target)  # fmt: skip
    _delta(x2, scores, pairs, c2, first, last, total, shift, over_tau, above, pairs_above,
           target, of_target, mixes, writes_z, with_target)  # fmt: skip
    _delta(x3, scores, pairs, c3, first, last, total, shift, over_tau, above, pairs_above,
           target, of_target, mixes, writes_z, with_target)  # fmt: skip


@triton.jit
def _factor(bases, bases_stride, lse, at):
    """z / w of a row."""
    total = tl.load(lse + at) * _LOG2_E
    total = tl.where(total == float("-inf"), 0.0, total)
    return tl.exp2(tl.load(bases + at * bases_stride) - total)


@triton.jit
def _differentiate_kept(
    delta, delta_group, delta_row, weights, weights_group, weights_row, bases, bases_stride,
    tau, tau_group, tau_row, lse, offset, sums, rows, width,
    unit: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    """Strides and the width are counted in units, so that a unit is loaded and stored as one."""
    at = tl.program_id(0).to(tl.int64)
    group, row = at // rows, at % rows
    delta += (group * delta_group + row * delta_row) * unit
    weights += (group * weights_group + row * weights_row) * unit
    factor = _factor(bases, bases_stride, lse, at)
    factor /= _dial(tau, tau_group, tau_row, group, row)
    column = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = column // unit < width
    w = tl.load(weights + column, inside, 0.0).to(tl.float32)
    slope = tl.load(delta + column, inside, 0.0).to(tl.float32) + tl.load(offset + at)
    result = (w * slope * factor).to(delta.dtype.element_ty)
    tl.store(delta + column, result, inside)
    total = tl.sum(tl.where(inside, result.to(tl.float32), 0.0), 0)
    tl.store(sums + at * tl.num_programs(1) + tl.program_id(1), total)


@triton.jit
def _excess(sums, tiles, at, room: tl.constexpr):
    """What the deltas of a row add up to."""
    k = tl.arange(0, room)
    return tl.sum(tl.load(sums + at * tiles + k, k < tiles, 0.0), 0)


@triton.jit
def _beside(
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
def _balance(
    d_query, sums, tiles, mixture, out, dim, width: tl.constexpr, room: tl.constexpr
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, width)
    m = tl.load(mixture + at * dim + d, d < dim, 0.0).to(tl.float32)
    excess = _excess(sums, tiles, at, room)
    value = tl.load(d_query + at * dim + d, d < dim, 0.0) - excess * m
    tl.store(out + at * dim + d, value.to(out.dtype.element_ty), d < dim)


@triton.jit
def _draw(out, keys, count, first, tile: tl.constexpr):
    at = tl.program_id(0).to(tl.int64)
    out += at * count
    start = first // _GROUP * _GROUP + tl.program_id(1) * tile
    column, draws = _first_columns(start, tile)
    e0, e1, e2, e3 = log2_noise(tl.load(keys + at), draws)
    last = first + count
    _put(out, column, e0 * -_LN_2, first, last)
    _put(out, column + _QUARTER, e1 * -_LN_2, first, last)
    _put(out, column + 2 * _QUARTER, e2 * -_LN_2, first, last)
    _put(out, column + 3 * _QUARTER, e3 * -_LN_2, first, last)


def draw(keys: Tensor, out: Tensor, first: int) -> None:
    """Gumbel noise of the columns from ``first`` on, a row of ``out`` for each key."""
    count = out.shape[-1]
    begin = first // _GROUP.value * _GROUP.value
    grid = keys.numel(), triton.cdiv(first + count - begin, _TILE)
    if out.numel():
        _draw[grid](out, keys.contiguous(), count, first, tile=_TILE, num_warps=_WARPS)


def absorb(
    p: Any,
    part: Any,
    scores: Tensor,
    weights: Tensor,
    state: Any,
    number: int,
    mixes: bool,
    chooses: bool,
) -> None:
    """Bring block ``number`` into the state: its scores S, and weights exp(a - base) from them."""
    groups, rows, _, dim = p.shape
    if not groups * rows:
        return
    _absorb[(groups * rows,)](
        *(*strided(scores), *strided(weights), *strided(p.noise, scores)),
        *strided(as_bytes(p.mask), scores),
        *(*_of_rows(p.tau), *_of_rows(p.beta), p.keys.contiguous()),
        *(state.top, state.base, state.total, state.index, state.mixture),
        *(rows, part.first, part.new, part.last, dim, state.base.shape[-1], number),
        noisy=p.noisy, given=p.noise is not None, masked=p.mask is not None, mixes=mixes,
        chooses=chooses, fresh=number == 0, tile=_TILE_OF_ROW, width=triton.next_power_of_2(dim),
        num_warps=_WARPS_OF_ROW,
    )  # fmt: skip


def finish(state: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The mixture, log-sum-exp and maximum of every row."""
    lse, top = torch.empty_like(state.top), torch.empty_like(state.top)
    dim = state.mixture.shape[-1]
    if lse.numel():
        _finish[(lse.numel(),)](
            *(state.top, state.base, state.total, state.mixture, lse, top, dim),
            state.base.shape[-1],
            mixes=dim > 0, width=triton.next_power_of_2(max(1, dim)), num_warps=_WARPS,
        )  # fmt: skip
    return state.mixture, lse, top


def offsets(p: Any, of_mixture: Tensor | None, mixture: Tensor, of_lse: Tensor | None) -> Tensor:
    """of_lse - <of_mixture, mixture> of every row."""
    groups, rows, _, dim = p.shape
    out = p.tau.new_empty(groups, rows)
    if out.numel():
        _inner[(groups * rows,)](
            out if of_mixture is None else of_mixture.contiguous(), mixture,
            out if of_lse is None else of_lse.contiguous(), out, dim,
            mixes=of_mixture is not None, with_lse=of_lse is not None,
            width=triton.next_power_of_2(dim), num_warps=_WARPS,
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
) -> None:
    """From S over <v, C> to delta over z."""
    groups, rows = p.shape[:2]
    if not groups * rows:
        return
    begin = part.first // _GROUP.value * _GROUP.value
    at_target = None if p.target is None else of_lse
    _differentiate[groups * rows, triton.cdiv(part.last - begin, _TILE)](
        *(*strided(scores), *strided(pairs), *strided(p.noise, scores)),
        *strided(as_bytes(p.mask), scores),
        *(*_of_rows(p.tau), *_of_rows(p.beta), p.keys.contiguous()),
        *(lse.contiguous(), offset, offset if at_target is None else at_target.contiguous()),
        offset if at_target is None else p.target.contiguous(),
        *(rows, part.first, part.new, part.last),
        noisy=p.noisy, given=p.noise is not None, masked=p.mask is not None,
        mixes=scores.shape[1] > rows, writes_z=pairs.shape[1] > rows,
        with_target=at_target is not None, tile=_TILE, num_warps=_WARPS,
    )  # fmt: skip


def differentiate_kept(
    p: Any, delta: Tensor, weights: Tensor, base: Tensor, lse: Tensor, offset: Tensor
) -> Tensor:
    """From <v, C> to delta in its place, with the weights w = 2^(x - base) of before.

    Returns the sum of delta of every row, in parts.
    """
    groups, rows = p.shape[:2]
    lengths = (*delta.stride()[:2], *weights.stride()[:2], weights.shape[-1])
    unit = math.gcd(_VECTOR, *lengths)
    delta_group, delta_row, weights_group, weights_row, width = (n // unit for n in lengths)
    tiles = triton.cdiv(weights.shape[-1], _TILE)
    sums = p.tau.new_empty(groups, rows, tiles)
    _differentiate_kept[groups * rows, tiles](
        *(delta, delta_group, delta_row, weights, weights_group, weights_row),
        *(base, base.stride(1), *_of_rows(p.tau), lse.contiguous(), offset, sums, rows, width),
        unit=unit, tile=_TILE, num_warps=_WARPS,
    )  # fmt: skip
    return sums


def beside(query: Tensor, v: Tensor, sums: Tensor, base: Tensor, lse: Tensor) -> Tensor:
    """Queries over v, less the excess of the queries, times what makes z of w."""
    groups, rows, dim = query.shape
    out = query.new_empty(groups, 2 * rows, dim)
    tiles = sums.shape[-1]
    _beside[(groups * rows,)](
        *(query, v, sums, tiles, out, base, base.stride(1), lse.contiguous(), rows, dim),
        width=triton.next_power_of_2(dim), room=triton.next_power_of_2(tiles), num_warps=_WARPS,
    )  # fmt: skip
    return out


def balanced(d_query: Tensor, sums: Tensor, mixture: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradient of the queries less the excess of the mixture, in that dtype."""
    groups, rows, dim = d_query.shape
    out = torch.empty_like(d_query, dtype=dtype)
    tiles = sums.shape[-1]
    _balance[(groups * rows,)](
        *(d_query, sums, tiles, mixture.contiguous(), out, dim),
        width=triton.next_power_of_2(dim), room=triton.next_power_of_2(tiles), num_warps=_WARPS,
    )  # fmt: skip
    return out


def _of_rows(dial: Tensor) -> tuple[Any, ...]:
    """A tensor [groups, rows] with its strides."""
    return dial, *dial.stride()


def strided(value: Tensor | None, instead: Tensor | None = None) -> tuple[Any, ...]:
    """A tensor [groups, rows, columns] with the strides of groups and rows."""
    if value is None:
        return instead, 0, 0
    value = value if value.stride(-1) == 1 else value.contiguous()
    return value, *value.stride()[:2]


def as_bytes(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.view(torch.uint8)
