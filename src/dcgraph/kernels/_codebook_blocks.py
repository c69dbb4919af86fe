"""What happens to a block of logits between the matrix products of ``codebook._blockwise``, fused.

The steps forward are here, those backward in ``_codebook_blocks_backward``. Each row is one
program, which goes over it once: weights 2^(x - base) need a base near the maximum, not the maximum
itself, so that the maximum of the first entries will do except for rows that rise by 2^48 after
them. Such a row is done again, with its maximum; so its scores are not overwritten.

The reference implementation is ``codebook._block_steps``.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ._codebook_blocks_backward import (
    differentiate,
    differentiate_kept,
    offsets,
    stack_query_and_v,
    subtract_excess,
    sums_kept,
)
from ._noise import (
    GROUP,
    LN_2,
    QUARTER,
    WARPS,
    as_bytes,
    dial_and_strides,
    perturbed_tile,
    put,
    scales,
    strided,
)

__all__ = [  # what codebook._block_steps has, too
    "IN_PLACE",
    "absorb",
    "differentiate",
    "differentiate_kept",
    "finish",
    "logits_at",
    "offsets",
    "stack_query_and_v",
    "subtract_excess",
    "sums_kept",
]

IN_PLACE = False  # whether the weights may stand where the scores do

_TILE, _WARPS = 2048, 8  # a program has a whole row
_LOWEST = tl.constexpr(-1e30)  # instead of -inf, whose difference with itself is NaN
_NOWHERE = tl.constexpr(2**31 - 1)
_FAR = tl.constexpr(48.0)  # above its base a row may rise to weights of 2^48; sums stay finite


@triton.jit
def _better(x, column, best, where):
    return tl.maximum(best, x), tl.where(x > best, column, where)


@triton.jit
def _put_weight(target, column, x, first, last):
    """2^x as it is stored: a row is divided by the sum of these, and so is a mixture exactly."""
    weight = tl.exp2(x).to(target.dtype.element_ty)
    put(target, column, weight, first, last)
    return weight.to(tl.float32)


@triton.jit
def _absorb(
    scores, scores_group, scores_row, weights, weights_group, weights_row,
    noise, noise_group, noise_row, mask, mask_group, mask_row,
    tau, tau_group, tau_row, beta, beta_group, beta_row,
    keys, tops, bases, totals, indices, mixture,
    rows, first, new, last, shift, dim, parts, number,
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
    scale, noise_scale = scales(tau, tau_group, tau_row, beta, beta_group, beta_row, group, row)
    key = tl.load(keys + at)
    begin = first // GROUP * GROUP
    lowest = tl.full([tile // 4], _LOWEST, tl.float32)
    best, sums = lowest, tl.zeros([tile // 4], tl.float32)
    where = tl.full([tile // 4], _NOWHERE, tl.int32)
    old_top = tl.max(lowest, 0)
    old_base = old_top
    if not fresh:
        old_top, old_base = tl.load(tops + at), tl.load(bases + at * parts + number - 1)
    base = old_base
    if mixes and fresh:
        _, x0, x1, x2, x3 = perturbed_tile(
            scores, noise, mask, begin, key, first, new, last, shift, scale, noise_scale,
            noisy, given, masked, tile,
        )  # fmt: skip
        base = tl.max(tl.maximum(lowest, tl.maximum(tl.maximum(x0, x1), tl.maximum(x2, x3))), 0)
    passes = 1
    while passes > 0:
        best, sums = lowest, tl.zeros([tile // 4], tl.float32)
        for start in range(begin, last, tile):
            c0, x0, x1, x2, x3 = perturbed_tile(
                scores, noise, mask, start, key, first, new, last, shift, scale, noise_scale,
                noisy, given, masked, tile,
            )  # fmt: skip
            c1, c2, c3 = c0 + QUARTER, c0 + 2 * QUARTER, c0 + 3 * QUARTER
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
        found = tl.where(place < _NOWHERE, place - shift, -1)
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
    top = tl.where(total == 0, float("-inf"), tl.load(tops + at) * LN_2)
    divisor = tl.where(total == 0, 1.0, total)
    base = tl.where(total == 0, float("-inf"), tl.load(bases + at * parts + parts - 1) * LN_2)
    tl.store(lse + at, base + tl.log2(divisor) * LN_2)
    tl.store(top_out + at, tl.where(total == total, top, total))  # NaN stays visible
    if mixes:
        d = tl.arange(0, width)
        value = tl.load(mixture + at * dim + d, d < dim, 0.0) / divisor
        tl.store(mixture + at * dim + d, value, d < dim)


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
    groups, rows = p.shape[:2]
    dim = state.mixture.shape[-1]
    if not groups * rows:
        return
    _absorb[(groups * rows,)](
        *(*strided(scores), *strided(weights), *strided(p.noise, scores)),
        *strided(as_bytes(p.mask), scores),
        *(*dial_and_strides(p.tau), *dial_and_strides(p.beta), p.keys.contiguous()),
        *(state.top, state.base, state.total, state.index, state.mixture),
        *(rows, p.first + part.first, p.first + part.new, p.first + part.last, p.first),
        *(dim, state.base.shape[-1], number),
        noisy=p.noisy, given=p.noise is not None, masked=p.mask is not None, mixes=mixes,
        chooses=chooses, fresh=number == 0, tile=_TILE,
        width=triton.next_power_of_2(max(1, dim)),
        num_warps=_WARPS,
    )  # fmt: skip


def finish(state: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The mixture, log-sum-exp and maximum of every row."""
    lse, top = torch.empty_like(state.top), torch.empty_like(state.top)
    dim = state.mixture.shape[-1]
    if lse.numel():
        _finish[(lse.numel(),)](
            *(state.top, state.base, state.total, state.mixture, lse, top, dim),
            state.base.shape[-1],
            mixes=dim > 0, width=triton.next_power_of_2(max(1, dim)), num_warps=WARPS,
        )  # fmt: skip
    return state.mixture, lse, top


@triton.jit
def _logits_at(
    query, codebook, codebook_group, codebook_row, index, tau, out, rows, n, dim, each,
    width: tl.constexpr,
):  # fmt: skip
    """A query times one row of the codebook, in eight parts that are added up.

    First the even parts, then the odd ones: another order would change the last bits of a sum.
    """
    at = tl.program_id(0).to(tl.int64)
    group = at // rows
    row = tl.load(index + at)
    place = tl.arange(0, width)
    query += at * dim
    codes = codebook + group * codebook_group + row * codebook_row
    exists = (row >= 0) & (row < n)
    total = tl.zeros([width], tl.float32)
    for odd in tl.static_range(2):
        for even in tl.static_range(4):
            k = place + (odd + 2 * even) * each
            inside = (place < each) & exists & (k < dim)
            code = tl.load(codes + k, inside, 0.0).to(tl.float32)
            total += tl.load(query + k, inside, 0.0).to(tl.float32) * code
    result = tl.sum(total, 0) / tl.load(tau + at)
    tl.store(out + at, tl.where(exists, result, float("nan")))


def logits_at(p: Any, index: Tensor) -> Tensor:
    """The logits of one category of each row, without noise."""
    groups, rows, n, dim = p.shape
    out = p.tau.new_empty(groups, rows)
    each = triton.cdiv(dim, 8)
    codebook = p.codebook if p.codebook.stride(-1) == 1 else p.codebook.contiguous()
    if out.numel():
        _logits_at[(groups * rows,)](
            *(p.query.contiguous(), codebook, *codebook.stride()[:2], index.contiguous()),
            *(p.tau.contiguous(), out, rows, n, dim, each),
            width=triton.next_power_of_2(each), num_warps=1,
        )  # fmt: skip
    return out
