"""A codebook in which one category has nearly all the weight, and others have almost its row."""

from __future__ import annotations

import torch
from torch import Tensor

LARGE = (500, 900, 901)


def large_logits(size: float, gap: float) -> tuple[Tensor, Tensor]:
    """Five queries and 1,003 rows, three of which have logits of about that size, with a gap.

    Gradients are then small differences of large numbers, both of products and of rows.
    """
    generator = torch.Generator().manual_seed(3)
    query, codebook = (torch.randn(count, 6, generator=generator) for count in (5, 1003))
    along, *across = torch.linalg.qr(query[:3].T)[0].unbind(1)
    codebook *= 0.1
    codebook[LARGE[0]] = first = along * size**0.5
    for place, row, more in zip(LARGE[1:], across, (0.0, 0.4), strict=True):
        codebook[place] = first * (1 - (gap + more) / size) + row
    return first + 0.01 * query, codebook


def errors_by_row(found: Tensor, expected: Tensor) -> list[float]:
    difference, whole = ((t.double() ** 2).sum(-1) for t in (found - expected, expected))
    return (difference / whole).sqrt().tolist()
