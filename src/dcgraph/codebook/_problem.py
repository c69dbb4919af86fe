"""What all implementations are given, which of them to take, and the dense one."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from .. import kernels
from .._philox import draw_gumbel_at
from ..distributed._shards import Shard
from ..functional import one_hot, straight_through
from ..noise import draw_gumbel

Implementation = Literal["dense", "blockwise", "streaming"]
"""With a matrix of all logits, block by block of the codebook, or in one kernel on a GPU."""

Found = tuple[Tensor, Tensor, Tensor, Tensor]
"""Value, log-sum-exp, argmax and maximum of every row, see :func:`._operators.scan`."""

_SMALL = {"cpu": 1 << 18, "cuda": 1 << 20}
"""Up to so many logits their matrix is no burden, and nothing has to be computed twice."""

STREAMING_DIM = 128
"""Up to this width a tile of the mixture fits beside its queries into the registers of a GPU, and
the stream is faster. Wider ones are matrix products that cuBLAS does better."""


@dataclass(frozen=True)
class Problem:
    """Queries over a codebook, for several groups that have nothing to do with each other.

    The perturbed logits of a row are a = (S + beta G) / tau with S = query . codebook.
    """

    query: Tensor  # [groups, rows, dim]
    codebook: Tensor  # [groups, n, dim]
    tau: Tensor  # [groups, rows], as beta and keys
    beta: Tensor  # negative for reversed noise
    keys: Tensor  # of the noise, see dcgraph._philox
    noise: Tensor | None  # G [groups, rows, n] to replay, instead of the keys
    mask: Tensor | None  # [groups, rows, n], True where a category may be chosen
    target: Tensor | None  # [groups, rows]: wanted is lse(a) - a[target]
    index: Tensor | None  # [groups, rows]: wanted is this row, with the gradient of the mixture
    noisy: bool  # False where beta is known to be 0
    shard: Shard | None = None  # which rows of the whole codebook these are, if not all

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Groups, rows, n, dim."""
        return *self.query.shape[:2], *self.codebook.shape[1:]

    @property
    def compute_dtype(self) -> torch.dtype:
        """What sums and exponentials are computed in."""
        return torch.promote_types(self.query.dtype, torch.float32)

    @property
    def first(self) -> int:
        """The number of the first row in the whole codebook: its noise is that from there on."""
        return 0 if self.shard is None else self.shard.first

    @property
    def gradient_dtype(self) -> torch.dtype:
        """Of the gradient of the query; what is to be added up over ranks is not rounded yet."""
        return self.query.dtype if self.shard is None else self.compute_dtype

    def codes(self, index: Tensor) -> Tensor:
        """The rows [groups, rows, dim] of the codebook with these indices."""
        wide = index.unsqueeze(-1).expand(*index.shape, self.codebook.shape[-1])
        return self.codebook.gather(1, wide)


def fastest(p: Problem) -> Implementation:
    """The fastest implementation for this device and these sizes whose memory is bounded."""
    if torch.compiler.is_exporting():
        return "dense"  # torch's own operations, whatever the number of rows turns out to be
    groups, rows, n, _ = p.shape
    on_gpu = p.query.device.type == "cuda"
    if groups * rows * n <= _SMALL["cuda" if on_gpu else "cpu"]:
        return "dense"
    if on_gpu and not kernels.available() and not torch.compiler.is_compiling():
        _warn_without_triton()
    return "streaming" if can_stream(p) else "blockwise"


def can_stream(p: Problem) -> bool:
    """Whether the streaming kernel can do it at all."""
    return (
        p.query.device.type == "cuda"
        and p.query.dtype in (torch.float32, torch.bfloat16)
        and p.codebook.dtype == p.query.dtype
        and p.codebook.shape[-1] <= STREAMING_DIM
        and kernels.available()
    )


@cache
def _warn_without_triton() -> None:
    warnings.warn(
        "Triton is not installed, so that choices over a codebook run without their kernels on "
        "this GPU: slower, with the same results; install the package triton to change that.",
        RuntimeWarning,
        stacklevel=5,
    )


def scan_dense(p: Problem, *, mixes: bool, chooses: bool) -> Found:
    """The definition: logits, noise and softmax as whole matrices, and torch's own gradients.

    Arguments and result as in :func:`._operators.scan`.
    """
    a = _perturbed(p)
    top, index = a.max(-1)
    empty = top == -math.inf
    index = index.masked_fill(empty, -1) if p.index is None else p.index
    if not mixes:
        lse = a.logsumexp(-1)
        if p.target is not None:
            lse = lse - a.gather(-1, p.target.unsqueeze(-1)).squeeze(-1)
        return a.new_empty(0), lse, index, top
    none = empty.unsqueeze(-1)
    z = a.masked_fill(none, 0.0).softmax(-1).masked_fill(none, 0.0)
    if chooses or p.index is not None:
        z = straight_through(one_hot(index, z.shape[-1], z.dtype), z)
    value = product(z, p.codebook, p.compute_dtype).to(p.query.dtype)
    return value, a.logsumexp(-1), index, top


_EXPORTED = 1 << 16  # rows of the codebook


def index_for_export(p: Problem) -> Tensor:
    """The argmax of S + beta G, -1 for none, in plain operations of torch for other runtimes.

    Block by block, so that their matrix of logits is no wider than a block.
    """
    best, index = torch.full_like(p.beta, -math.inf), torch.full_like(p.keys, -1)
    for first in range(0, p.codebook.shape[1], _EXPORTED):
        block = slice(first, first + _EXPORTED)
        a = p.query.to(p.compute_dtype) @ p.codebook[:, block].mT.to(p.compute_dtype)
        if p.noisy and p.noise is None:
            a = a + p.beta.unsqueeze(-1) * draw_gumbel(a.shape, None, a.dtype, a.device)
        elif p.noise is not None:
            a = a + p.beta.unsqueeze(-1) * p.noise[..., block]
        if p.mask is not None:
            a = a.masked_fill(~p.mask[..., block], -math.inf)
        top, at = a.max(-1)
        index = torch.where(top > best, at + first, index)
        best = torch.maximum(top, best)
    return index


def product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """``a @ b``, computed and given in that dtype. Logits must not be rounded: they are exponents.

    What the backward pass needs is kept as it came, in half the memory where it is in bfloat16.
    """
    if a.dtype == b.dtype == dtype:
        return a @ b
    found: Tensor = _Product.apply(a, b, dtype)  # type: ignore[no-untyped-call]
    return found


class _Product(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
        return a.to(dtype) @ b.to(dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, torch.dtype], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        a, b = ctx.saved_tensors
        of_a, of_b, _ = ctx.needs_input_grad
        d_a = (gradient @ b.to(gradient.dtype).mT).to(a.dtype) if of_a else None
        d_b = (a.to(gradient.dtype).mT @ gradient).to(b.dtype) if of_b else None
        return d_a, d_b, None


def _perturbed(p: Problem) -> Tensor:
    """a = (S + beta G) / tau."""
    a = product(p.query, p.codebook.mT, p.compute_dtype)
    if p.noisy:
        noise = p.noise
        if noise is None:
            noise = draw_gumbel_at(p.keys, p.first, p.codebook.shape[1], p.compute_dtype)
        a = a + p.beta.unsqueeze(-1) * noise
    a = a / p.tau.unsqueeze(-1)
    return a if p.mask is None else a.masked_fill(~p.mask, -math.inf)
