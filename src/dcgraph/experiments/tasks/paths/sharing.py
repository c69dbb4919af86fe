"""A table of vectors that a step uses several times, with one gradient.

Where all entities take part in every hop, passes over their table are what a step waits for. Left
to itself, torch makes a gradient of its size for each use, also for that of a few rows, adds them
two at a time, and at last converts the sum; and dropout is a pass of its own, there and back.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from .... import kernels
from ....kernels._operators import in_front
from ....noise import random_keys
from .dropout import drop, drop_by_torch


def shared(
    table: Float[Tensor, "entities width"],
    index: Int[Tensor, " queries"],
    uses: int,
    dtype: torch.dtype,
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "queries width"], list[Float[Tensor, "entities width"]]]:
    """These rows of a table in float32, and the whole of it for each use, in that dtype.

    In the last of them a share of the entries is dropped.
    """
    if torch.compiler.is_compiling():  # which sees all uses, and adds as it likes
        converted = table.to(dtype)
        tables = [*[converted] * (uses - 1), F.dropout(converted, dropout)]
        return table.index_select(0, index), tables
    keys = random_keys(1, table.device) if dropout else index.new_zeros(1)
    differentiable: Any = _Shared.apply
    rows, *tables = differentiable(table, index, keys, uses, dtype, dropout)
    return rows, tables


class _Shared(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        table: Tensor, index: Tensor, keys: Tensor, uses: int, dtype: torch.dtype, share: float
    ) -> tuple[Tensor, ...]:
        rows = table.index_select(0, index)
        if not share:
            converted = table.to(dtype)
            return rows, *(converted.detach() for _ in range(uses))
        converts = uses > 1 and dtype != table.dtype
        last, converted = (t.squeeze(0) for t in drop(table[None], keys, share, dtype, converts))
        converted = converted if converts else table
        return rows, *(converted.detach() for _ in range(uses - 1)), last

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        table, index, keys, *_, ctx.share = inputs
        ctx.save_for_backward(index, keys)
        ctx.shape, ctx.dtype = table.shape, table.dtype
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, of_rows: Tensor | None, *of_tables: Tensor | None) -> tuple[Any, ...]:
        index, keys = ctx.saved_tensors
        given = [gradient for gradient in of_tables if gradient is not None]
        if given:
            share = 0.0 if of_tables[-1] is None else ctx.share
            total: Tensor = _sum(given, keys, share).to(ctx.dtype)
        else:
            assert of_rows is not None  # or there is nothing to differentiate
            total = of_rows.new_zeros(ctx.shape)
        if of_rows is not None:
            total = total.index_add_(0, index, of_rows)
        return total, None, None, None, None, None


@torch.library.custom_op("dcgraph::sum", mutates_args=())
def _sum(terms: list[Tensor], keys: Tensor, share: float) -> Tensor:
    """Of gradients [..., entities, width] in float32; the last is that of the table with dropout,
    where a share of it was dropped."""
    if terms[0].is_cuda and kernels.available():
        from .kernels.sums import summed

        return summed(terms, keys, share)
    return _sum_by_torch(terms, keys, share)


def _sum_by_torch(terms: list[Tensor], keys: Tensor, share: float) -> Tensor:
    *others, last = terms
    total = last.to(torch.float32, copy=True)
    if share:
        matrices = total.view(keys.numel(), *total.shape[-2:])
        drop_by_torch(keys.flatten(), share, matrices, matrices)
    for term in others:
        total += term
    return total


@_sum.register_fake
def _(terms: list[Tensor], keys: Tensor, share: float) -> Tensor:
    return torch.empty_like(terms[0], dtype=torch.float32)


@_sum.register_vmap
def _(info: Any, in_dims: Any, terms: list[Tensor], keys: Tensor, share: float) -> Any:
    dims, of_keys, _ = in_dims
    mapped = [in_front(t, dim, info.batch_size) for t, dim in zip(terms, dims, strict=True)]
    return _sum(mapped, in_front(keys, of_keys, info.batch_size), share), 0
