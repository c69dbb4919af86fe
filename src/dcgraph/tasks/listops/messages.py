"""A round of messages along the edges of a tree, with receivers of few kinds."""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Float, Int
from torch import Tensor


def messages(
    receiver: Float[Tensor, "kinds dim"],
    sender: Float[Tensor, "batch length dim"],
    weight: Float[Tensor, "dim dim"],
    bias: Float[Tensor, " dim"],
    edges: Float[Tensor, "batch length length"],
    kinds: Int[Tensor, "batch length"],
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
        edges: A, [batch, child, parent].
        kinds: k, the kind of each node as a receiver; -1 receives nothing.
        dropout: share of the hidden units that are dropped.
    """
    if _has_kernel(sender):
        from ...kernels.messages import messages as fused

        given = (receiver, sender, weight, bias, edges, kinds)
        receiver, sender, weight, bias, edges, kinds = (value.unsqueeze(0) for value in given)
        return fused(receiver, sender, weight, bias, edges, kinds, dropout).squeeze(0)
    factor = None
    if dropout:
        shape = (sender.shape[0], receiver.shape[0], *sender.shape[1:])
        kept = torch.rand(shape, device=sender.device) >= dropout
        factor = kept / (1 - dropout)
    return messages_by_torch(receiver, sender, weight, bias, edges, kinds, factor)


def messages_by_torch(
    receiver: Float[Tensor, "kinds dim"],
    sender: Float[Tensor, "batch length dim"],
    weight: Float[Tensor, "dim dim"],
    bias: Float[Tensor, " dim"],
    edges: Float[Tensor, "batch length length"],
    kinds: Int[Tensor, "batch length"],
    factor: Float[Tensor, "batch kinds length dim"] | None = None,
) -> Float[Tensor, "batch length dim"]:
    """The definition of :func:`messages`, given the dropout factors 0 or 1 / (1 - dropout)."""
    hidden = (receiver.unsqueeze(1) + sender.unsqueeze(1)).relu()
    hidden = hidden if factor is None else hidden * factor
    sent = torch.nn.functional.linear(hidden, weight, bias).relu()
    is_kind = kinds.unsqueeze(-1) == torch.arange(receiver.shape[0], device=kinds.device)
    # For every receiver the weight of every message (kind, sender), most of them 0.
    weights = is_kind.unsqueeze(-1) * edges.mT.unsqueeze(2)
    return weights.flatten(2) @ sent.flatten(1, 2)


def _has_kernel(sender: Tensor) -> bool:
    on_gpu = sender.is_cuda and sender.dtype == torch.float32
    return on_gpu and max(sender.shape[-2:]) <= 64 and _kernels_load()


@cache
def _kernels_load() -> bool:
    try:
        from ...kernels import messages  # noqa: F401
    except ImportError:  # there are GPUs without Triton
        return False
    return True
