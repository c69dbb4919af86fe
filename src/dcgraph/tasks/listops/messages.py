"""Rounds of messages along the edges of a tree, with receivers of few kinds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ... import kernels

_STEPS = 1 << 16  # of the shares that can be dropped


@dataclass(frozen=True)
class Routes:
    """Where messages go: the same in every round.

    Args:
        edges: A, the weight of the edge from each child to each parent.
        kinds: k, the kind of each node as a receiver; -1 receives nothing.
        count: how many kinds there are.
    """

    edges: Float[Tensor, "batch child parent"]
    kinds: Int[Tensor, "batch length"]
    count: int

    @cached_property
    def weights(self) -> Float[Tensor, "batch parent messages"]:
        """For every receiver the weight of every message (kind, sender), most of them 0."""
        kind = torch.arange(self.count, device=self.kinds.device)
        is_kind = self.kinds.unsqueeze(-1) == kind
        return (is_kind.unsqueeze(-1) * self.edges.mT.unsqueeze(2)).flatten(2)


def messages(
    receiver: Float[Tensor, "kinds dim"],
    sender: Float[Tensor, "batch length dim"],
    weight: Float[Tensor, "dim dim"],
    bias: Float[Tensor, " dim"],
    routes: Routes,
    dropout: float = 0.0,
) -> Float[Tensor, "batch length dim"]:
    r"""What every node receives from its children:

    .. math::
        out_i = \sum_j A_{ji}\, \mathrm{relu}(W\, \mathrm{drop}(\mathrm{relu}(r_{k(i)} + s_j)) + c)

    A receiver enters only through its kind k(i), so a sender has as many messages as there are
    kinds, and not one for each receiver: less work for long sequences, and the same without
    dropout. With dropout, receivers of a kind share their masks; each message has the same law.

    Args:
        receiver: r, a row for each kind.
        sender: s.
        weight, bias: W and c.
        routes: A and k.
        dropout: share of the hidden units that are dropped.
    """
    if _has_kernel(sender):
        from ...kernels.messages import messages as fused

        given = (receiver, sender, weight, bias, routes.edges, routes.kinds)
        receiver, sender, weight, bias, edges, kinds = (value.unsqueeze(0) for value in given)
        return fused(receiver, sender, weight, bias, edges, kinds, dropout).squeeze(0)
    if not dropout:
        return messages_by_torch(receiver, sender, weight, bias, routes)
    shape = (sender.shape[0], routes.count, *sender.shape[1:])
    # What is kept is scaled up: the weights are, for they are fewer.
    scaled, mask = weight / (1 - dropout), kept(shape, dropout, sender.device)
    return messages_by_torch(receiver, sender, scaled, bias, routes, mask)


def messages_by_torch(
    receiver: Float[Tensor, "kinds dim"],
    sender: Float[Tensor, "batch length dim"],
    weight: Float[Tensor, "dim dim"],
    bias: Float[Tensor, " dim"],
    routes: Routes,
    mask: Bool[Tensor, "batch kinds length dim"] | None = None,
) -> Float[Tensor, "batch length dim"]:
    """The definition of :func:`messages`, with the hidden units to keep, or all."""
    hidden = (receiver.unsqueeze(1) + sender.unsqueeze(1)).relu_()
    hidden = hidden if mask is None else torch.where(mask, hidden, 0.0)
    sent = F.linear(hidden, weight, bias).relu_()
    return routes.weights @ sent.flatten(1, 2)


def kept(shape: tuple[int, ...], dropout: float, device: torch.device) -> Bool[Tensor, "..."]:
    """True where a unit is kept, with probability 1 - dropout to within 2^-17.

    A random integer of 64 bits serves four units: on a CPU drawing a float for each would take a
    fifth of a training step.
    """
    count = math.prod(shape)
    words = torch.randint(-(1 << 63), (1 << 63) - 1, (-(-count // 4),), device=device)
    return (words.view(torch.int16)[:count] >= round(dropout * _STEPS) - _STEPS // 2).view(shape)


def _has_kernel(sender: Tensor) -> bool:
    on_gpu = sender.is_cuda and sender.dtype == torch.float32
    return on_gpu and max(sender.shape[-2:]) <= 64 and kernels.available()
