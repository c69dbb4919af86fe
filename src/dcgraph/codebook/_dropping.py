"""Dropout of a whole codebook before anything else, where that is small.

The ways that never hold a codebook after dropout make it again wherever they need it, block by
block. A small one is made once, and again only for its gradient.
"""

from typing import Any

import torch
from torch import Tensor

from .. import kernels
from ..kernels.operators import differentiable, models_in_front
from . import _steps_by_torch as steps_by_torch

SMALL = 1 << 25
"""Entries of the codebooks of a call; under vmap, of one replica."""


def dropped(codebook: Tensor, keys: Tensor, share: float) -> Tensor:
    """Codebooks [groups, n, dim] times their dropout factors, of which there is a key for each."""
    run = differentiable(_Dropped, drop)
    result: Tensor = run(codebook, keys, share, codebook.dtype, False)[0]
    return result


@torch.library.custom_op("dcgraph::drop_codebook", mutates_args=())
def drop(
    codebook: Tensor, keys: Tensor, share: float, dtype: torch.dtype, copies: bool
) -> tuple[Tensor, Tensor]:
    """Codebooks with dropout in that dtype and, from the same pass, a copy of them without."""
    out, copy = _room(codebook, dtype, copies)
    if codebook.is_cuda and codebook.dtype != torch.float64 and kernels.available():
        from ..kernels import dropout

        dropout.drop(keys, share, codebook, 0, out, copy if copies else None)
    else:
        steps_by_torch.drop(keys, share, codebook, 0, out)
        if copies:
            copy.copy_(codebook)
    return out, copy


@drop.register_fake
def _(
    codebook: Tensor, keys: Tensor, share: float, dtype: torch.dtype, copies: bool
) -> tuple[Tensor, Tensor]:
    return _room(codebook, dtype, copies)


def _room(codebook: Tensor, dtype: torch.dtype, copies: bool) -> tuple[Tensor, Tensor]:
    groups, n, dim = codebook.shape
    new = codebook.new_empty
    return new(groups, n, dim, dtype=dtype), new(groups, n if copies else 0, dim, dtype=dtype)


models_in_front(drop, 2, seeded=False)


class _Dropped(torch.autograd.Function):
    """Of the first result; a copy has no gradient here."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> Any:
        return drop(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _, keys, ctx.share, *_ = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(keys)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Any) -> tuple[Any, ...]:
        (keys,) = ctx.saved_tensors
        return dropped(gradient, keys, ctx.share), None, None, None, None


drop.register_autograd(_Dropped.backward, setup_context=_Dropped.setup_context)
