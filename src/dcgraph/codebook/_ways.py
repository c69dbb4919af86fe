"""Which way of mixing to take: the whole matrix, block by block, or as one stream."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Literal

import torch

from .. import kernels
from ._problem import Problem

Way = Literal["plain", "blockwise", "streaming"]
"""How to mix: with whole matrices, block by block of the codebook, or in one kernel on a GPU."""

_WHOLE = {"cpu": 1 << 18, "cuda": 1 << 20}
"""Up to so many logits the whole matrix is no burden, and nothing has to be computed twice."""

STREAMING_DIM = 128
"""Up to this width a tile of the mixture fits beside its queries into the registers of a GPU, and
the stream is faster. Wider ones are matrix products that cuBLAS does better."""


def best_way(p: Problem) -> Way:
    """The fastest way for this device and these sizes whose memory is bounded."""
    groups, rows, n, _ = p.shape
    on_gpu = p.query.device.type == "cuda"
    if groups * rows * n <= _WHOLE["cuda" if on_gpu else "cpu"]:
        return "plain"
    if on_gpu and not kernels.available():
        _warn_without_triton()
    return "streaming" if can_stream(p) else "blockwise"


def can_stream(p: Problem) -> bool:
    """Whether the streaming kernel can do it at all."""
    return (
        p.query.device.type == "cuda"
        and p.query.dtype in (torch.float32, torch.bfloat16)
        and p.codebook.dtype == p.query.dtype
        and not p.dropout
        and p.codebook.shape[-1] <= STREAMING_DIM
        and kernels.available()
    )


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
