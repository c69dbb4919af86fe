"""Operators of the models: complex products, and a table used several times with one gradient.

What is said here in torch is the reference implementation of :mod:`.kernels`, which run on CUDA.
Factors of dropout are a function of a key, a row and a column, as noise is in
:mod:`dcgraph._philox`: they are drawn again in the backward pass, not kept.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from .... import kernels
from ...._philox import philox
from ....codebook._sharded import rows_at
from ....distributed._shards import Shard
from ....kernels._operators import in_front, models_in_front
from ....noise import drawn_alike, random_keys


def complex_product(
    a: Float[Tensor, "*batch width"],
    b: Float[Tensor, "*batch width"],
    dtype: torch.dtype | None = None,
) -> Float[Tensor, "*batch width"]:
    """The products of complex numbers; a vector has all real parts, then all imaginary ones.

    Re<s, r, conj(o)> is then the plain product of the vectors complex_product(s, r) and o. The
    result has that dtype, if one is given.

    >>> complex_product(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0]))  # (1 + 2i) * i
    tensor([-2.,  1.])
    """
    dtype = dtype or torch.promote_types(a.dtype, b.dtype)
    if a.is_cuda and kernels.available() and not torch.compiler.is_compiling():
        from .kernels import DTYPES, ComplexProduct  # optional extra: Triton

        if {a.dtype, b.dtype, dtype} <= set(DTYPES):
            multiply: Any = ComplexProduct.apply
            product: Tensor = multiply(a, b, dtype)
            return product
    (a_re, a_im), (b_re, b_im) = a.chunk(2, -1), b.chunk(2, -1)
    return torch.cat([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], -1).to(dtype)


def table_uses(
    table: Float[Tensor, "entities width"],
    index: Int[Tensor, " queries"],
    uses: int,
    dtype: torch.dtype,
    dropout: float = 0.0,
    shard: Shard | None = None,
) -> tuple[Float[Tensor, "queries width"], list[Float[Tensor, "entities width"]]]:
    """These rows of a table in float32, and the whole of it for each use, in that dtype.

    Of a table that is divided over ranks there are the own rows for each use.

    In the last of them a share of the entries is dropped. All uses have one gradient. Where all
    entities take part in every hop, passes over their table are what a step waits for: left to
    itself, torch makes a gradient of its size for each use, also for that of a few rows, adds them
    two at a time, and at last converts the sum; and dropout is a pass of its own, there and back.
    """
    if torch.compiler.is_compiling():  # which sees all uses, and adds as it likes
        converted = table.to(dtype)
        tables = [*[converted] * (uses - 1), F.dropout(converted, dropout)]
        return table.index_select(0, index), tables
    differentiable: Any = _TableUses.apply
    if shard is not None:
        with drawn_alike(shard.group):
            keys = random_keys(1, table.device) if dropout else index.new_zeros(1)
        none = index.new_empty(0)
        _, *tables = differentiable(table, none, keys, uses, dtype, dropout, shard.first)
        return rows_of_all(table, index, shard), tables
    keys = random_keys(1, table.device) if dropout else index.new_zeros(1)
    rows, *tables = differentiable(table, index, keys, uses, dtype, dropout, 0)
    return rows, tables


def rows_of_all(
    own: Float[Tensor, "own_rows width"], index: Int[Tensor, "*queries"], shard: Shard
) -> Float[Tensor, "*queries width"]:
    """Rows of a table that is divided over ranks, from the rank that has them; each has the
    gradient of its own."""
    rows = rows_at(own.unsqueeze(0), index.reshape(1, -1), shard)
    return rows.view(*index.shape, own.shape[1])


class _TableUses(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        table: Tensor,
        index: Tensor,
        keys: Tensor,
        uses: int,
        dtype: torch.dtype,
        share: float,
        first: int,
    ) -> tuple[Tensor, ...]:
        rows = table.index_select(0, index)
        if not share:
            converted = table.to(dtype)
            return rows, *(converted.detach() for _ in range(uses))
        converts = uses > 1 and dtype != table.dtype
        dropped = drop(table[None], keys, share, dtype, converts, first)
        last, converted = (t.squeeze(0) for t in dropped)
        converted = converted if converts else table
        return rows, *(converted.detach() for _ in range(uses - 1)), last

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        table, index, keys, *_, ctx.share, ctx.first = inputs
        ctx.save_for_backward(index, keys)
        ctx.shape, ctx.dtype = table.shape, table.dtype
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, of_rows: Tensor | None, *of_tables: Tensor | None) -> tuple[Any, ...]:
        index, keys = ctx.saved_tensors
        given = [gradient for gradient in of_tables if gradient is not None]
        if given:
            share = 0.0 if of_tables[-1] is None else ctx.share
            total: Tensor = _sum(given, keys, share, ctx.first).to(ctx.dtype)
        else:
            assert of_rows is not None  # or there is nothing to differentiate
            total = of_rows.new_zeros(ctx.shape)
        if of_rows is not None:
            total = total.index_add_(0, index, of_rows)
        return total, *[None] * 6


@torch.library.custom_op("dcgraph::sum", mutates_args=())
def _sum(terms: list[Tensor], keys: Tensor, share: float, first: int) -> Tensor:
    """Of gradients [..., entities, width] in float32; the last is that of the table with dropout,
    where a share of it was dropped."""
    if terms[0].is_cuda and kernels.available():
        from .kernels import summed  # optional extra: Triton

        return summed(terms, keys, share, first)
    return sum_by_torch(terms, keys, share, first)


def sum_by_torch(terms: list[Tensor], keys: Tensor, share: float, first: int = 0) -> Tensor:
    *others, last = terms
    total = last.to(torch.float32, copy=True)
    if share:
        matrices = total.view(keys.numel(), *total.shape[-2:])
        drop_by_torch(keys.flatten(), share, matrices, matrices, first)
    for term in others:
        total += term
    return total


@_sum.register_fake
def _(terms: list[Tensor], keys: Tensor, share: float, first: int) -> Tensor:
    return torch.empty_like(terms[0], dtype=torch.float32)


@_sum.register_vmap
def _(info: Any, in_dims: Any, terms: list[Tensor], keys: Tensor, share: float, first: int) -> Any:
    dims, of_keys, *_ = in_dims
    mapped = [in_front(t, dim, info.batch_size) for t, dim in zip(terms, dims, strict=True)]
    return _sum(mapped, in_front(keys, of_keys, info.batch_size), share, first), 0


@torch.library.custom_op("dcgraph::drop_rows", mutates_args=())
def drop(
    tables: Tensor, keys: Tensor, share: float, dtype: torch.dtype, copies: bool, first: int = 0
) -> tuple[Tensor, Tensor]:
    """Tables [groups, n, dim] with dropout in that dtype, from a key for each.

    Their rows count from ``first`` on, so that parts of a table have the factors of the whole.
    Also, from the same pass, copies of them without dropout, if there shall be any.
    """
    out, copy = _room(tables, dtype, copies)
    if tables.is_cuda and tables.dtype != torch.float64 and kernels.available():
        from .kernels import drop as drop_by_kernel  # optional extra: Triton

        drop_by_kernel(keys, share, tables, out, copy if copies else None, first)
    else:
        drop_by_torch(keys, share, tables, out, first)
        if copies:
            copy.copy_(tables)
    return out, copy


@drop.register_fake
def _(
    tables: Tensor, keys: Tensor, share: float, dtype: torch.dtype, copies: bool, first: int = 0
) -> tuple[Tensor, Tensor]:
    return _room(tables, dtype, copies)


def _room(tables: Tensor, dtype: torch.dtype, copies: bool) -> tuple[Tensor, Tensor]:
    groups, n, dim = tables.shape
    new = tables.new_empty
    return new(groups, n, dim, dtype=dtype), new(groups, n if copies else 0, dim, dtype=dtype)


models_in_front(drop, 2, seeded=False)


def drop_by_torch(
    keys: Tensor, share: float, tables: Tensor, out: Tensor, first: int = 0
) -> Tensor:
    """Tables, or their gradients, times their dropout factors: the reference of the kernel."""
    dtype = torch.promote_types(tables.dtype, out.dtype)
    _, rows, dim = tables.shape
    factors = dropout_factors(keys, rows, dim, share, first)
    return torch.mul(tables.to(dtype), factors.to(dtype), out=out)


def dropout_factors(keys: Tensor, rows: int, dim: int, share: float, first: int = 0) -> Tensor:
    """Factors [groups, rows, dim], 0 or 1 / (1 - share), of tables that have a key each.

    A draw serves eight entries, 16 bits each: half h of draw k belongs to entry h e + k of a row,
    where e = ceil(dim / 8) is the number of draws of a row.
    """
    row = torch.arange(first, first + rows, device=keys.device).expand(len(keys), -1)
    draw = torch.arange(-(-dim // 8), device=keys.device)
    words = philox(keys[..., None, None], (row.unsqueeze(-1), draw, 0, 1))
    halves = [half for word in words for half in (word & 0xFFFF, word >> 16 & 0xFFFF)]
    drawn = torch.cat(halves, -1)[..., :dim]
    return (drawn >= round(share * 65536)).float().mul_(1 / (1 - share))
