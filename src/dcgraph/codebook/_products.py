"""Matrix products with blocks of a codebook, in the shapes that a GPU is fast at."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ALIGNED = 8  # a row of products that is no multiple of this long makes cuBLAS several times slower
_PIECES = 7
_SMALL, _LONG = 1 << 18, 1 << 13
"""Products of at most so many entries, each a sum of at least so many terms, go in pieces."""


def sum_up(weights: Tensor, codes: Tensor, out: Tensor, adds: bool) -> None:
    """The products that go along a block: ``out = weights @ codes``, or ``out += ...``.

    In TF32 their sums are cut into pieces, one beside the other: an output of 512 x 512 alone does
    not keep a GPU busy, and what cuBLAS does against that takes a quarter longer.
    """
    _, rows, dim = out.shape
    in_tf32 = weights.is_cuda and torch.get_float32_matmul_precision() != "highest"
    in_tf32 = in_tf32 and weights.dtype == torch.float32
    if in_tf32 and len(weights) == 1 and rows * dim <= _SMALL and weights.shape[-1] >= _LONG:
        sum_in_pieces(weights[0], codes[0], out[0], adds)
    else:
        multiply(weights, codes, out, adds)


def sum_in_pieces(weights: Tensor, codes: Tensor, out: Tensor, adds: bool) -> None:
    """The same for matrices, in seven pieces of the sum and a rest."""
    length = weights.shape[-1] // (_PIECES * ALIGNED) * ALIGNED
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
