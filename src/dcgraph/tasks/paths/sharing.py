"""A table of vectors that a step uses several times, with one gradient.

Where all entities take part in every hop, passes over their table are what a step waits for. Left
to itself, torch makes a gradient of its size for each use, also for that of a few rows, adds them
two at a time, and at last converts the sum.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ... import kernels
from ...kernels.operators import in_front


def shared(
    table: Float[Tensor, "entities width"],
    index: Int[Tensor, " queries"],
    uses: int,
    dtype: torch.dtype,
) -> tuple[Float[Tensor, "queries width"], list[Float[Tensor, "entities width"]]]:
    """These rows of a table in float32, and the whole of it for each use, in that dtype."""
    if torch.compiler.is_compiling():  # which sees all uses, and adds as it likes
        return table.index_select(0, index), [table.to(dtype)] * uses
    differentiable: Any = _Shared.apply
    rows, *tables = differentiable(table, index, uses, dtype)
    return rows, tables


class _Shared(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(table: Tensor, index: Tensor, uses: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        converted = table.to(dtype)
        return table.index_select(0, index), *(converted.detach() for _ in range(uses))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        table, index, *_ = inputs
        ctx.save_for_backward(index)
        ctx.shape, ctx.dtype = table.shape, table.dtype
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, of_rows: Tensor | None, *of_tables: Tensor | None) -> tuple[Any, ...]:
        (index,) = ctx.saved_tensors
        given = [gradient for gradient in of_tables if gradient is not None]
        if given:
            total: Tensor = _sum(given).to(ctx.dtype)
        else:
            assert of_rows is not None  # or there is nothing to differentiate
            total = of_rows.new_zeros(ctx.shape)
        if of_rows is not None:
            total = total.index_add_(0, index, of_rows)
        return total, None, None, None


@torch.library.custom_op("dcgraph::sum", mutates_args=())
def _sum(terms: list[Tensor]) -> Tensor:
    """In float32."""
    if terms[0].is_cuda and kernels.available():
        from ...kernels.sums import summed

        return summed(terms)
    return _sum_by_torch(terms)


def _sum_by_torch(terms: list[Tensor]) -> Tensor:
    first, *others = terms
    total = first.to(torch.float32, copy=True)
    for term in others:
        total += term
    return total


@_sum.register_fake
def _(terms: list[Tensor]) -> Tensor:
    return torch.empty_like(terms[0], dtype=torch.float32)


@_sum.register_vmap
def _(info: Any, in_dims: Any, terms: list[Tensor]) -> tuple[Tensor, int]:
    (dims,) = in_dims
    mapped = [in_front(t, dim, info.batch_size) for t, dim in zip(terms, dims, strict=True)]
    return _sum(mapped), 0
