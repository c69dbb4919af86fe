"""Which way of mixing to take: the whole matrix, or block by block."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Literal

import torch

from .. import kernels
from .problem import Problem

Way = Literal["plain", "blockwise"]
"""How to mix: with whole matrices, or block by block of the codebook."""

_WHOLE = {"cpu": 1 << 18, "cuda": 1 << 20}
"""Up to so many logits the whole matrix is no burden, and nothing has to be computed twice."""


def best_way(p: Problem) -> Way:
    """The fastest way for this device and these sizes whose memory is bounded."""
    groups, rows, n, _ = p.shape
    on_gpu = p.query.device.type == "cuda"
    if groups * rows * n <= _WHOLE["cuda" if on_gpu else "cpu"]:
        return "plain"
    if on_gpu and not kernels.available():
        _warn_without_triton()
    return "blockwise"


def _warn_without_triton() -> None:
    if not torch.compiler.is_compiling():
        _warn()


@cache
def _warn() -> None:
    warnings.warn(
        "Triton cannot be imported, so that mixing on this GPU runs without its kernels: slower, "
        "with the same results; install the package triton to change that.",
        RuntimeWarning,
        stacklevel=6,
    )
