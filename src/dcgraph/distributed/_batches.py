"""Batches of several ranks as one, for a codebook that all of them share."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Shaped
from torch import Tensor

from ._shards import agree, eager, rank_in


@eager
def gather_batch(
    values: Shaped[Tensor, "batch *rest"], group: dist.ProcessGroup
) -> Shaped[Tensor, "all_batches *rest"]:
    """The batches of all ranks of a group, one after the other, on every rank.

    For ranks with batches of their own: the queries of all go into a codebook that they share, and
    :func:`own_batch` takes from the result what belongs to this rank. All batches have one size.

    The gradient that comes back is that of the own batch: every rank goes on with the same values,
    so that the gradient is known here as a whole.
    """

    def checked() -> Tensor:
        if not isinstance(values, Tensor) or not values.ndim:
            raise TypeError("values have no dimension of a batch; pass a tensor [batch, ...].")
        return values

    def facts(values: Tensor) -> tuple[int, dict[str, object]]:
        return len(values), {"call": "gather", "batch": list(values.shape)}

    agree(group, values.device, checked, facts)
    gathered: Tensor = _Gather.apply(values, group)  # type: ignore[no-untyped-call]
    return gathered


@eager
def own_batch(
    values: Shaped[Tensor, "all_batches *rest"], group: dist.ProcessGroup
) -> Shaped[Tensor, "batch *rest"]:
    """Of the batches of all ranks, one after the other, that of this rank.

    In the backward pass the gradients of all ranks come together again, for the codebook needs all
    of them: :func:`gather_batch` the other way round.
    """
    rank_in(group)
    if len(values) % dist.get_world_size(group):
        raise ValueError(
            f"{len(values)} values are no batches of one size for {dist.get_world_size(group)} "
            "ranks; pass what came of dcgraph.distributed.gather_batch."
        )
    part: Tensor = _Own.apply(values, group)  # type: ignore[no-untyped-call]
    return part


def _gathered(values: Tensor, group: dist.ProcessGroup) -> Tensor:
    device = values.device
    if device.type != "cpu" and dist.get_backend(group) == "gloo":  # it gathers on the CPU only
        values = values.cpu()
    ranks = dist.get_world_size(group)
    out = values.new_empty(ranks * len(values), *values.shape[1:])
    dist.all_gather(list(out.chunk(ranks)), values.contiguous(), group=group)
    return out.to(device)


def _own(values: Tensor, group: dist.ProcessGroup) -> Tensor:
    return values.chunk(dist.get_world_size(group))[dist.get_rank(group)].clone()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _gathered(values, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _own(gradient, ctx.group), None


class _Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _own(values, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _gathered(gradient, ctx.group), None
