"""The sum of several tensors in one pass over memory, also where the last is a gradient of dropout.

The reference implementation is ``tasks.paths.sharing._sum_by_torch``.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .dropout import draw, factor_of, kept

_TILE = 2048
_ROWS = 16


@triton.jit
def _sum(terms, out, count, tile: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    total = tl.zeros([tile], tl.float32)
    for k in tl.static_range(len(terms)):
        total += tl.load(terms[k] + at, at < count, 0.0).to(tl.float32)
    tl.store(out + at, total, at < count)


@triton.jit
def _sum_some(terms, out, start, word, half: tl.constexpr, column, real, dim, threshold, factor):
    """The entries of a row that have the same half of a word."""
    at, inside = start + column, real & (column < dim)
    last: tl.constexpr = len(terms) - 1
    total = tl.load(terms[last] + at, inside, 0.0).to(tl.float32)
    total *= kept(word, half, threshold, factor)
    for k in tl.static_range(last):
        total += tl.load(terms[k] + at, inside, 0.0).to(tl.float32)
    tl.store(out + at, total, inside)


@triton.jit
def _sum_dropped(
    terms, out, keys, count, dim, each, threshold, factor,
    rows: tl.constexpr, width: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1).to(tl.int64) * rows + tl.arange(0, rows)[:, None]
    place = tl.arange(0, width)[None, :]
    a, b, c, d = draw(tl.load(keys + group), row, place)
    start = (group * count + row) * dim
    real = (row < count) & (place < each)
    for half in tl.static_range(2):
        at = place + half * each
        _sum_some(terms, out, start, a, half, at, real, dim, threshold, factor)
        at += 2 * each
        _sum_some(terms, out, start, b, half, at, real, dim, threshold, factor)
        at += 2 * each
        _sum_some(terms, out, start, c, half, at, real, dim, threshold, factor)
        at += 2 * each
        _sum_some(terms, out, start, d, half, at, real, dim, threshold, factor)


def summed(terms: list[Tensor], keys: Tensor, share: float) -> Tensor:
    """In float32, of tensors [..., rows, dim] of one shape; the last times its dropout factors.

    There is a key for each matrix of rows.
    """
    out = torch.empty(terms[0].shape, device=terms[0].device)
    given = tuple(term.contiguous() for term in terms)
    if not out.numel():
        return out
    if not share:
        _sum[(triton.cdiv(out.numel(), _TILE),)](given, out, out.numel(), tile=_TILE, num_warps=8)
        return out
    count, dim = out.shape[-2:]
    each = triton.cdiv(dim, 8)
    _sum_dropped[keys.numel(), triton.cdiv(count, _ROWS)](
        *(given, out, keys.contiguous(), count, dim, each, round(share * 65536)),
        factor_of(share, torch.float32), rows=_ROWS, width=triton.next_power_of_2(each),
    )  # fmt: skip
    return out
