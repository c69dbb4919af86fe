"""What the tests of choices over codebooks share: inputs, and how an implementation is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dcgraph.codebook._functions import using
from dcgraph.codebook._problem import Implementation

IMPLEMENTATIONS: list[Implementation] = ["dense", "blockwise"]


several_blocks = pytest.mark.usefixtures("small_blocks")


def inputs(
    *groups: int, rows: int = 5, n: int = 1003, dim: int = 6, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    torch.manual_seed(n)
    query = torch.randn(*groups, rows, dim, dtype=dtype, requires_grad=True)
    codebook = torch.randn(*groups, n, dim, dtype=dtype, requires_grad=True)
    return query, codebook


def by(
    implementation: Implementation | None, call: Callable[..., Any], *given: Any, **options: Any
) -> Any:
    """What that implementation makes of a call."""
    with using(implementation):
        return call(*given, **options)
