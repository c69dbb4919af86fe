"""Rounds of messages along the edges of a tree."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ..... import kernels
from .....noise import draw_words

_STEPS = 1 << 16  # of the shares that can be dropped


class MessageLayers(nn.Module):
    """The MLP of a message, from what receives and what sends: its first layer is a sum of two."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.of_receiver, self.of_sender = nn.Linear(dim, dim), nn.Linear(dim, dim, bias=False)
        bound = 1 / math.sqrt(2 * dim)  # that of one layer of width 2 dim
        for parameter in (*self.of_receiver.parameters(), *self.of_sender.parameters()):
            nn.init.uniform_(parameter, -bound, bound)
        self.last = nn.Linear(dim, dim)
        self.dropout = dropout

    def forward(
        self,
        receiver: Float[Tensor, "*rows dim"],
        x: Float[Tensor, "batch length dim"],
        routes: Routes,
    ) -> Float[Tensor, "batch receivers dim"]:
        """What the receivers of ``routes`` are sent; ``receiver`` is what :attr:`of_receiver` makes
        of a row for each kind of them, or for each of them if they have no kinds."""
        dropout = self.dropout if self.training else 0.0
        last = self.last
        return messages(receiver, self.of_sender(x), last.weight, last.bias, routes, dropout)


@dataclass(frozen=True)
class Routes:
    """Who sends to whom.

    Args:
        edges: A, the weight of each edge.
        kinds: k, the kind of each receiver, -1 for one that receives nothing; None: all differ.
        count: how many kinds there are.
    """

    edges: Float[Tensor, "batch child receivers"]
    kinds: Int[Tensor, "batch receivers"] | None = None
    count: int = 0

    def to_root(self) -> Routes:
        """To the first token only."""
        kinds = None if self.kinds is None else self.kinds[:, :1]
        return replace(self, edges=self.edges[:, :, :1], kinds=kinds)

    @cached_property
    def is_kind(self) -> Bool[Tensor, "batch receivers kinds"]:
        assert self.kinds is not None
        return self.kinds.unsqueeze(-1) == torch.arange(self.count, device=self.kinds.device)

    @cached_property
    def weights(self) -> Float[Tensor, "batch receivers messages"]:
        """For every receiver the weight of every message (kind, sender), most of them 0."""
        return (self.is_kind.unsqueeze(-1) * self.edges.mT.unsqueeze(2)).flatten(2)

    @cached_property
    def present(self) -> Int[Tensor, "batch kinds"]:
        """The kinds among the receivers of an example, then -1 for each one that is not."""
        kind = torch.arange(self.count, device=self.edges.device, dtype=torch.int32)
        return torch.where(self.is_kind.any(1), kind, -1).sort(-1, descending=True).values


def messages(
    receiver: Float[Tensor, "*rows dim"],
    sender: Float[Tensor, "batch length dim"],
    weight: Float[Tensor, "dim dim"],
    bias: Float[Tensor, " dim"],
    routes: Routes,
    dropout: float = 0.0,
) -> Float[Tensor, "batch receivers dim"]:
    r"""What every receiver is sent, in all:

    .. math::
        out_i = \sum_j A_{ji}\, \mathrm{relu}(W\, \mathrm{drop}(\mathrm{relu}(r_i + s_j)) + c)

    If a receiver enters only through its kind, r_i = r_{k(i)}, a sender has as many messages as
    there are kinds, and not one for each receiver: less work for long sequences, and the same
    without dropout. With dropout, receivers of a kind share their masks; each message has the same
    distribution.

    Args:
        receiver: r, [kinds, dim], or [batch, receivers, dim] where there are no kinds.
        sender: s.
        weight, bias: W and c.
        routes: A and k.
        dropout: share of the hidden units that are dropped.
    """
    if routes.kinds is not None and routes.edges.shape[-1] < routes.count:
        # Fewer receivers than kinds.
        receiver = routes.is_kind.to(receiver.dtype) @ receiver
        routes = Routes(routes.edges)
    if _has_kernel(sender):
        return _by_kernel(receiver, sender, weight, bias, routes, dropout)
    if not dropout:
        return messages_by_torch(receiver, sender, weight, bias, routes)
    shape = (len(sender), routes.count or routes.edges.shape[-1], *sender.shape[1:])
    # What is kept is scaled up: the weights are, for they are fewer.
    scaled, mask = weight / (1 - dropout), kept(shape, dropout, sender.device)
    return messages_by_torch(receiver, sender, scaled, bias, routes, mask)


def messages_by_torch(
    receiver: Float[Tensor, "*rows dim"],
    sender: Float[Tensor, "batch length dim"],
    weight: Float[Tensor, "dim dim"],
    bias: Float[Tensor, " dim"],
    routes: Routes,
    mask: Bool[Tensor, "batch rows length dim"] | None = None,
) -> Float[Tensor, "batch receivers dim"]:
    """The definition of :func:`messages`, with the hidden units to keep, or all."""
    hidden = (receiver.unsqueeze(-2) + sender.unsqueeze(1)).relu_()
    hidden = hidden if mask is None else torch.where(mask, hidden, 0.0)
    sent = F.linear(hidden, weight, bias).relu_()
    if routes.kinds is None:
        return (routes.edges.mT.unsqueeze(2) @ sent).squeeze(2)
    return routes.weights @ sent.flatten(1, 2)


def _by_kernel(
    receiver: Tensor,
    sender: Tensor,
    weight: Tensor,
    bias: Tensor,
    routes: Routes,
    dropout: float,
) -> Tensor:
    from ..kernels.messages import messages as fused  # it needs Triton, which not every torch has

    if routes.kinds is None:  # a kind for each receiver, and a table of them for each example
        place = torch.arange(routes.edges.shape[-1], dtype=torch.int32, device=sender.device)
        kinds = present = place.expand(len(sender), -1)
    else:  # one table for all examples
        kinds, present, receiver = routes.kinds.int(), routes.present, receiver.unsqueeze(0)
    given = [receiver, sender, weight, bias, routes.edges, kinds, present]
    receiver, sender, weight, bias, edges, kinds, present = (v.unsqueeze(0) for v in given)
    return fused(receiver, sender, weight, bias, edges, kinds, present, dropout).squeeze(0)


def kept(shape: tuple[int, ...], dropout: float, device: torch.device) -> Bool[Tensor, "..."]:
    """True where a unit is kept, with probability 1 - dropout to within 2^-17.

    A random integer of 64 bits serves four units: on a CPU drawing a float for each would take a
    fifth of a training step.
    """
    count = math.prod(shape)
    words = draw_words(-(-count // 4), device)
    return (words.view(torch.int16)[:count] >= round(dropout * _STEPS) - _STEPS // 2).view(shape)


def _has_kernel(sender: Tensor) -> bool:
    on_gpu = sender.is_cuda and sender.dtype == torch.float32
    return on_gpu and max(sender.shape[-2:]) <= 64 and kernels.available()
