"""Dropout of a whole codebook before anything else, where that is small.

The ways that never hold a codebook after dropout make it again wherever they need it, block by
block. A small one is made once, and again only for its gradient.
"""

from typing import Any

import torch
from torch import Tensor

from .. import kernels
from ..kernels.operators import differentiable, models_in_front
from . import steps_by_torch

SMALL = 1 << 25
"""Entries of the codebooks of a call; under vmap, of one replica."""


def dropped(codebook: Tensor, keys: Tensor, share: float) -> Tensor:
    """Codebooks [groups, n, dim] times their dropout factors, of which there is a key for each."""
    result: Tensor = differentiable(_Dropped, _drop)(codebook, keys, share)
    return result


@torch.library.custom_op("dcgraph::drop_codebook", mutates_args=())
def _drop(codebook: Tensor, keys: Tensor, share: float) -> Tensor:
    out = torch.empty_like(codebook, memory_format=torch.contiguous_format)
    if codebook.is_cuda and codebook.dtype != torch.float64 and kernels.available():
        from ..kernels import dropout

        return dropout.drop(keys, share, codebook, 0, out)
    return steps_by_torch.drop(keys, share, codebook, 0, out)


@_drop.register_fake
def _(codebook: Tensor, keys: Tensor, share: float) -> Tensor:
    return torch.empty_like(codebook, memory_format=torch.contiguous_format)


models_in_front(_drop, 1, seeded=False)


class _Dropped(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> Any:
        return _drop(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, keys, ctx.share = inputs
        ctx.save_for_backward(keys)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        (keys,) = ctx.saved_tensors
        return dropped(gradient, keys, ctx.share), None, None


_drop.register_autograd(_Dropped.backward, setup_context=_Dropped.setup_context)
