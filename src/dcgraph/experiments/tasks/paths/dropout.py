"""Dropout of a table of vectors, whose factors are drawn again in the backward pass, not kept.

Factors are a function of a key, a row and a column, as noise is in :mod:`dcgraph._philox`.
"""

import torch
from torch import Tensor

from .... import kernels
from ...._philox import philox
from ....kernels._operators import models_in_front


@torch.library.custom_op("dcgraph::drop_rows", mutates_args=())
def drop(
    tables: Tensor, keys: Tensor, share: float, dtype: torch.dtype, copies: bool
) -> tuple[Tensor, Tensor]:
    """Tables [groups, n, dim] with dropout in that dtype, from a key for each.

    Also, from the same pass, copies of them without dropout, if there shall be any.
    """
    out, copy = _room(tables, dtype, copies)
    if tables.is_cuda and tables.dtype != torch.float64 and kernels.available():
        from .kernels import drop as drop_by_kernel  # imports Triton

        drop_by_kernel(keys, share, tables, out, copy if copies else None)
    else:
        drop_by_torch(keys, share, tables, out)
        if copies:
            copy.copy_(tables)
    return out, copy


@drop.register_fake
def _(
    tables: Tensor, keys: Tensor, share: float, dtype: torch.dtype, copies: bool
) -> tuple[Tensor, Tensor]:
    return _room(tables, dtype, copies)


def _room(tables: Tensor, dtype: torch.dtype, copies: bool) -> tuple[Tensor, Tensor]:
    groups, n, dim = tables.shape
    new = tables.new_empty
    return new(groups, n, dim, dtype=dtype), new(groups, n if copies else 0, dim, dtype=dtype)


models_in_front(drop, 2, seeded=False)


def drop_by_torch(keys: Tensor, share: float, tables: Tensor, out: Tensor) -> Tensor:
    """Tables, or their gradients, times their dropout factors: the reference of the kernel."""
    dtype = torch.promote_types(tables.dtype, out.dtype)
    _, rows, dim = tables.shape
    factors = dropout_factors(keys, rows, dim, share)
    return torch.mul(tables.to(dtype), factors.to(dtype), out=out)


def dropout_factors(keys: Tensor, rows: int, dim: int, share: float) -> Tensor:
    """Factors [groups, rows, dim], 0 or 1 / (1 - share), of tables that have a key each.

    A draw serves eight entries, 16 bits each: half h of draw k belongs to entry h e + k of a row,
    where e = ceil(dim / 8) is the number of draws of a row.
    """
    row = torch.arange(rows, device=keys.device).expand(len(keys), -1)
    draw = torch.arange(-(-dim // 8), device=keys.device)
    words = philox(keys[..., None, None], (row.unsqueeze(-1), draw, 0, 1))
    halves = [half for word in words for half in (word & 0xFFFF, word >> 16 & 0xFFFF)]
    drawn = torch.cat(halves, -1)[..., :dim]
    return (drawn >= round(share * 65536)).float().mul_(1 / (1 - share))
