"""A codebook in which one category has nearly all the weight, and another almost the same row."""

from __future__ import annotations

import torch
from torch import Tensor

FIRST, SECOND = 500, 900


def two_large_logits(size: float, gap: float) -> tuple[Tensor, Tensor]:
    """Five queries and 1,003 rows, two of which have logits of about that size, a gap apart.

    Gradients are then small differences of large numbers, both of products and of rows.
    """
    generator = torch.Generator().manual_seed(3)
    query, codebook = (torch.randn(count, 6, generator=generator) for count in (5, 1003))
    direction, across = torch.linalg.qr(query[:2].T)[0].unbind(1)
    first = direction * size**0.5
    codebook *= 0.1
    codebook[FIRST], codebook[SECOND] = first, first * (1 - gap / size) + across
    return first + 0.01 * query, codebook


def errors_by_row(found: Tensor, expected: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm
    return norm(found.double() - expected, dim=-1) / norm(expected, dim=-1)
