"""Blocks of a codebook: how large they are, what is kept of each, and their matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import kernels
from .._philox import GROUP
from ._problem import Problem

_ENTRIES = {"cpu": 1 << 20, "cuda": 1 << 24, "cuda, kept": 1 << 25}
"""Of a block of logits: on a CPU what its cache holds, on a GPU what keeps it busy. Where weights
are made again, as many gradients stand beside them, and so a block has half as many."""

_KEPT = {"cpu": 1 << 25, "cuda": 1 << 26}
"""Weights of one call that are kept for the backward pass, at most; else they are made again."""

_ALIGNED = 8  # a row of products that is no multiple of this long makes cuBLAS several times slower
_PIECES = 7
_FEW, _LONG = 1 << 18, 1 << 13
"""Products of at most so many entries, each a sum of at least so many terms, go in pieces."""


@dataclass(frozen=True)
class Block:
    """Categories ``first`` to ``last``; those before ``new`` were in an earlier block, too."""

    first: int
    last: int
    new: int

    @property
    def width(self) -> int:
        return self.last - self.first

    def of(self, codebook: Tensor) -> Tensor:
        return codebook[:, self.first : self.last]


@dataclass
class State:
    """What is known of every row after some blocks."""

    top: Tensor  # the largest a so far, in the unit of the steps
    base: Tensor  # what the weights of each block are counted from: near top, in the same unit
    total: Tensor  # of the weights exp(a - base)
    index: Tensor  # where a was largest, -1 if nowhere
    mixture: Tensor  # sum of exp(a - base) C, float32; no columns where it is not wanted


@dataclass(frozen=True)
class Kept:
    """Weights exp(a - base) of the forward pass, block beside block, and the bases of each.

    Where rows are mixed, the weights are the lower half of ``entries``, and the upper one is room
    for the backward pass. Where there is no mixture, the entries are the products S: they are
    there, and delta at a target is exact.
    """

    entries: Tensor
    bases: Tensor

    def of(self, parts: list[Block], number: int) -> Tensor:
        """What is kept of a block, the room above it included."""
        start = sum(part.width for part in parts[:number])
        return self.entries[..., start : start + parts[number].width]


def split(n: int, rows: int, device: torch.device, kept: bool = False) -> list[Block]:
    """The codebook in blocks, in the order in which to take them.

    Where n is no multiple of 8, the last block is as wide as the others and begins a bit earlier,
    so that every product has a width that suits a GPU. It shares categories with the block before
    it and skips them; it comes first because that block then writes their gradient.
    """
    entries = _ENTRIES["cpu" if device.type == "cpu" else "cuda, kept" if kept else "cuda"]
    largest = max(GROUP, entries // max(1, rows))
    count = -(-n // largest)
    uneven = n % _ALIGNED > 0 and device.type != "cpu" and n > 2 * GROUP
    count = max(count, 2) if uneven else count
    width = -(-n // (count * GROUP)) * GROUP
    starts = range(0, n, width)
    in_order = [Block(start, min(start + width, n), start) for start in starts]
    if uneven:
        in_order = [Block(n - width, n, starts[-1]), *in_order[:-1]]
    return in_order


def keeps(p: Problem, mixes: bool, learns: bool) -> bool:
    """Whether the weights are few enough to be kept for the backward pass.

    Steps in torch overwrite the products where nothing is mixed, and then those are not.
    """
    groups, rows, n, _ = p.shape
    few = groups * rows * n <= _KEPT["cuda" if p.query.is_cuda else "cpu"]
    return learns and few and (mixes or has_kernels(p))


def has_kernels(p: Problem) -> bool:
    """Whether kernels do what happens between the products."""
    return p.query.is_cuda and p.compute_dtype == torch.float32 and kernels.available()


def makes_mixture(p: Problem, mixes: bool, chooses: bool, learns: bool) -> bool:
    """Whether the mixture is needed: not for a row that is chosen, if the weights are kept."""
    hard = chooses or p.index is not None
    return mixes and not (hard and keeps(p, mixes, learns))


def kept_dtype(p: Problem, mixes: bool) -> torch.dtype:
    return product_dtype(p) if mixes else p.compute_dtype


def kept_shapes(p: Problem, mixes: bool, learns: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of the entries and of the bases, [groups, rows, ...]; without rows where none are kept."""
    groups, rows, n, _ = p.shape
    keep = keeps(p, mixes, learns)
    parts = split(n, groups * rows, p.query.device, keep)
    rows = rows if keep else 0
    height = 2 * rows if mixes else rows
    return (groups, height, sum(part.width for part in parts)), (groups, rows, len(parts))


def product_dtype(p: Problem) -> torch.dtype:
    """bfloat16 has a product of its own on a GPU; the weights of float16 would underflow."""
    on_gpu = p.query.is_cuda and p.query.dtype == torch.bfloat16
    return torch.bfloat16 if on_gpu and kernels.available() else p.compute_dtype


def sum_up(weights: Tensor, codes: Tensor, out: Tensor, adds: bool) -> None:
    """The products that go along a block: ``out = weights @ codes``, or ``out += ...``.

    In TF32 their sums are cut into pieces, one beside the other: an output of 512 x 512 by itself
    does not keep a GPU busy, and what cuBLAS does against that takes a quarter longer.
    """
    _, rows, dim = out.shape
    in_tf32 = weights.is_cuda and torch.get_float32_matmul_precision() != "highest"
    in_tf32 = in_tf32 and weights.dtype == torch.float32
    if in_tf32 and len(weights) == 1 and rows * dim <= _FEW and weights.shape[-1] >= _LONG:
        sum_in_pieces(weights[0], codes[0], out[0], adds)
    else:
        multiply(weights, codes, out, adds)


def sum_in_pieces(weights: Tensor, codes: Tensor, out: Tensor, adds: bool) -> None:
    """The same for matrices, in seven pieces of the sum and a rest."""
    length = weights.shape[-1] // (_PIECES * _ALIGNED) * _ALIGNED
    joined = _PIECES * length
    pieces = weights[:, :joined].unflatten(1, (_PIECES, length)).transpose(0, 1)
    total = torch.bmm(pieces, codes[:joined].unflatten(0, (_PIECES, length))).sum(0)
    if joined < weights.shape[-1]:
        total.addmm_(weights[:, joined:], codes[joined:])
    if adds:
        out.add_(total)
    else:
        out.copy_(total)


def multiply(a: Tensor, b: Tensor, out: Tensor, adds: bool = False) -> None:
    """``out = a @ b``, or ``out += a @ b``; ``out`` may be of higher precision."""
    options: dict[str, Any] = {"out": out}
    if a.dtype != out.dtype:
        options["out_dtype"] = out.dtype
    multiply: Any = torch.bmm
    add: Any = torch.baddbmm
    if len(a) == 1:
        a, b, options["out"] = a[0], b[0], out[0]
        multiply, add = torch.mm, torch.addmm
    if adds:
        add(options["out"], a, b, **options)
    else:
        multiply(a, b, **options)
