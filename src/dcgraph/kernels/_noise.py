"""Gumbel noise inside of kernels: from random bits, and in perturbed logits a = (S + beta G) / tau.

The noise of a codebook is that of ``dcgraph._philox``: a draw has four words, for columns 32 apart,
so that no number has to change its thread. a is counted in units of log 2, which the hardware takes
powers and logarithms of.
"""

import os
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

if os.environ.get("TRITON_INTERPRET") == "1":  # the interpreter knows no other logarithm

    @triton.jit
    def _log2(x):
        return tl.log2(x)

else:
    from triton.language.extra import libdevice

    @triton.jit
    def _log2(x):
        """One instruction, with an error of 2e-7; Triton's own is a polynomial of twenty."""
        return libdevice.fast_log2f(x)


LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def log2_exponential(own, other):
    """log2 E of an exponential E = -log(1 - u), with u in (0, 1) from 23 + 23 random bits.

    Bits become a float in [1, 2) as its mantissa. ``own`` gives the first bits of u and ``other``
    those below, so that u is fine near 0, where the large Gumbel values -log E come from.
    """
    first = ((own & 0x007FFFFF) | 0x3F800000).to(tl.float32, bitcast=True)
    below = ((other >> 9) | 0x3F800001).to(tl.float32, bitcast=True)  # the last bit keeps u > 0
    u = below * 1.1920928955078125e-07 + (first - 1.00000011920928955)
    series = u * (1.0 + u * (0.5 + u * (0.33333333 + u * 0.25)))
    # 1 - u has lost the digits of a small u, and the factor keeps it above 0.
    logarithm = _log2(1.0 - u * 0.99999988079071045) * -LN_2
    return _log2(tl.where(u < 0.03125, series, logarithm))


@triton.jit
def log2_exponentials(a, b, c, d):
    """Four of them from four words. Each word also refines its neighbour, below 2^-23 of u: every
    draw has the exact distribution, and two neighbours share nothing that could be seen."""
    return (
        log2_exponential(a, b),
        log2_exponential(b, c),
        log2_exponential(c, d),
        log2_exponential(d, a),
    )


TILE, WARPS = 2048, 4
QUARTER = tl.constexpr(32)
GROUP = tl.constexpr(128)
_ROUNDS = tl.constexpr(7)


@triton.jit
def log2_noise(key, draws):
    """-log2(e) G of the four columns of each draw, as ``_philox.gumbel_of_bits`` has it."""
    zero = tl.zeros_like(draws).to(tl.uint32)
    a, b, c, d = tl.philox(key, draws.to(tl.uint32), zero, zero, zero, _ROUNDS)
    return log2_exponentials(a, b, c, d)


@triton.jit
def _first_columns(start, tile: tl.constexpr):
    """The first of the four columns of each draw, and the number of the draw."""
    lane = tl.arange(0, tile // 4)
    column = start + lane // QUARTER * GROUP + lane % QUARTER
    return column, start // 4 + lane


@triton.jit
def _perturbed(
    scores, noise, mask, column, log2_e, first, new, last, shift, scale, noise_scale,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr,
):  # fmt: skip
    """log2(e) a of some columns; -inf where there is nothing to choose."""
    real = (column >= new) & (column < last)
    x = tl.load(scores + (column - first), real, 0.0) * scale
    if noisy:
        if given:
            log2_e = tl.load(noise + (column - shift), real, 0.0) * -LOG2_E
        x += noise_scale * log2_e
    if masked:
        real = real & (tl.load(mask + (column - shift), real, 0) != 0)
    return tl.where(real, x, float("-inf"))


@triton.jit
def perturbed_tile(
    scores, noise, mask, start, key, first, new, last, shift, scale, noise_scale,
    noisy: tl.constexpr, given: tl.constexpr, masked: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    """The four quarters of a tile, and the columns of the first of them.

    Columns are those of the whole codebook; noise and mask have them from ``shift`` on, and scores
    from ``first`` on.
    """
    c0, draws = _first_columns(start, tile)
    e0 = tl.zeros([tile // 4], tl.float32)
    e1, e2, e3 = e0, e0, e0
    if noisy and not given:
        e0, e1, e2, e3 = log2_noise(key, draws)
    c1, c2, c3 = c0 + QUARTER, c0 + 2 * QUARTER, c0 + 3 * QUARTER
    x0 = _perturbed(
        scores, noise, mask, c0, e0, first, new, last, shift, scale, noise_scale,
        noisy, given, masked,
    )  # fmt: skip
    x1 = _perturbed(
        scores, noise, mask, c1, e1, first, new, last, shift, scale, noise_scale,
        noisy, given, masked,
    )  # fmt: skip
    x2 = _perturbed(
        scores, noise, mask, c2, e2, first, new, last, shift, scale, noise_scale,
        noisy, given, masked,
    )  # fmt: skip
    x3 = _perturbed(
        scores, noise, mask, c3, e3, first, new, last, shift, scale, noise_scale,
        noisy, given, masked,
    )  # fmt: skip
    return c0, x0, x1, x2, x3


@triton.jit
def dial_of(dial, dial_group, dial_row, group, row):
    """Of a row; one number for all of them has strides of 0."""
    return tl.load(dial + group * dial_group + row * dial_row)


@triton.jit
def scales(tau, tau_group, tau_row, beta, beta_group, beta_row, group, row):
    """What the scores of a row are multiplied with, and its noise."""
    scale = 1.0 / dial_of(tau, tau_group, tau_row, group, row) * LOG2_E
    return scale, dial_of(beta, beta_group, beta_row, group, row) * scale * -LN_2


@triton.jit
def put(target, column, x, first, last):
    inside = (column >= first) & (column < last)
    tl.store(target + (column - first), x.to(target.dtype.element_ty), inside)


@triton.jit
def _draw(out, keys, count, first, tile: tl.constexpr):
    at = tl.program_id(0).to(tl.int64)
    out += at * count
    start = first // GROUP * GROUP + tl.program_id(1) * tile
    column, draws = _first_columns(start, tile)
    e0, e1, e2, e3 = log2_noise(tl.load(keys + at), draws)
    last = first + count
    put(out, column, e0 * -LN_2, first, last)
    put(out, column + QUARTER, e1 * -LN_2, first, last)
    put(out, column + 2 * QUARTER, e2 * -LN_2, first, last)
    put(out, column + 3 * QUARTER, e3 * -LN_2, first, last)


def draw(keys: Tensor, out: Tensor, first: int) -> None:
    """Gumbel noise of the columns from ``first`` on, a row of ``out`` for each key."""
    count = out.shape[-1]
    begin = first // GROUP.value * GROUP.value
    grid = keys.numel(), triton.cdiv(first + count - begin, TILE)
    if out.numel():
        _draw[grid](out, keys.contiguous(), count, first, tile=TILE, num_warps=WARPS)


def dial_and_strides(dial: Tensor) -> tuple[Any, ...]:
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
