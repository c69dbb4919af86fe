"""The paper's model: guess the parse tree, then compute along its edges in rounds of messages."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..... import kernels
from ....._observe import is_observed, watch
from .....functional import one_hot
from .....nodes import Discrete
from .....residual import draw_gate
from ..data.expressions import TOKENS, ZERO
from .edges import Edges
from .messages import MessageLayers, Routes

DIGITS = 10


class LatentTree(nn.Module):
    """Rounds of messages between the tokens of an expression, along the edges of a tree.

    In each round every token j sends a message to its parent i, an MLP of the token of i and the
    state of j, and each state becomes a digit after all rounds but the last (a :class:`Discrete`
    node with the classifier as g and the embeddings of the digits as codebook).

    Args:
        edges: where the tree comes from.
        dim: width of the states.
        rounds: of messages, unless the call says otherwise.
        restart: what a token receives is added to its embedding in each round, and not to its
            state. So its value is computed only from those of its children, which are final when it
            is computed for the last time.
        residual, gate: of the nodes, see :class:`Discrete`.
        dropout: on the hidden layer of the messages.
        masks: what has a dropout mask of its own: a sender and a "token" it sends to, or each
            "pair" of sender and receiver, as in the paper, which takes twice the time.
        estimator: of the gradient of a value, see :class:`Discrete`.
    """

    def __init__(
        self,
        edges: Edges,
        dim: int = 60,
        *,
        rounds: int = 5,
        restart: bool = False,
        residual: Literal["drop", "always", "weighted"] = "drop",
        gate: Literal["call", "example", "vector"] = "call",
        dropout: float = 0.1,
        masks: Literal["token", "pair"] = "token",
        estimator: str = "gumbel_softmax",
    ) -> None:
        super().__init__()
        self.edges = edges
        self.rounds, self.restart, self.masks = rounds, restart, masks
        self.embedding = nn.Parameter(torch.randn(len(TOKENS), dim))
        self.message = MessageLayers(dim, dropout)
        self.value = Discrete(
            dim, DIGITS, g=classifier(dim), codebook="given", residual=residual, gate=gate,
            estimator=estimator,
        )  # fmt: skip

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        lengths: Int[Tensor, " batch"],
        parents: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch 10"]:
        """Logits of the answer. ``parents`` is the tree, for a model that is given it."""
        _, answers = self._run(tokens, lengths, parents, self.rounds, of_root=True)
        return answers.squeeze(1)

    def run(
        self,
        tokens: Int[Tensor, "batch length"],
        lengths: Int[Tensor, " batch"],
        parents: Int[Tensor, "batch length"] | None = None,
        rounds: int | None = None,
    ) -> tuple[Float[Tensor, "batch length length"], Float[Tensor, "batch length 10"]]:
        """Edges [batch, child, parent], and the logits of the value of every token at the end."""
        return self._run(tokens, lengths, parents, rounds or self.rounds)

    def _run(
        self,
        tokens: Tensor,
        lengths: Tensor,
        parents: Tensor | None,
        rounds: int,
        of_root: bool = False,
    ) -> tuple[Tensor, Tensor]:
        edges = self.edges(tokens, lengths, parents)
        # A product, because the gradient of a look-up is slow on GPUs.
        embedded = x = watch("embedding", one_hot(tokens, len(TOKENS)) @ self.embedding)
        if self.masks == "pair":
            routes, received = Routes(edges), embedded
        else:
            routes = Routes(edges, self.edges.kinds(tokens), len(self.edges.received))
            received = self.embedding[self.edges.received]
        receiver = self.message.of_receiver(received)
        for k in range(1, rounds + 1):
            if k == rounds and of_root:  # all that is read of the last round
                routes = routes.to_root()
                receiver = receiver[:, :1] if self.masks == "pair" else receiver
            count = routes.edges.shape[-1]
            before = embedded if self.restart else x
            x = before[:, :count] + self.message(receiver, x, routes)
            if k < rounds:
                x = as_digits(self.value, watch(f"round {k}", x), self.embedding[ZERO:])
        return edges, self.value.logits(x)


def classifier(dim: int) -> nn.Sequential:
    """Pred of the paper: logits of the ten digits from a state."""
    return nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, DIGITS, bias=False))


def as_digits(
    node: Discrete, x: Float[Tensor, "batch length dim"], codebook: Float[Tensor, "10 dim"]
) -> Float[Tensor, "batch length dim"]:
    """``node(x, codebook=codebook)`` for a node with a :func:`classifier`; in distribution."""
    if not _has_kernel(node, x):
        v: Tensor = node(x, codebook=codebook)
        return v
    from ..kernels.discrete import discrete  # it needs Triton, which not every torch has

    first, _, last = node.g  # type: ignore[misc]
    given = x.flatten(0, 1), first.weight, first.bias, last.weight, codebook, node.tau, node.beta
    of_choice, of_residual = (share.expand(x.shape[:2]).flatten() for share in _shares(node, x))
    inputs = (value.unsqueeze(0) for value in (*given, of_choice, of_residual))
    return discrete(*inputs).view(x.shape)


def _shares(node: Discrete, x: Tensor) -> tuple[Tensor, Tensor]:
    """How much of the choice and of the residual a state gets."""
    dropres, one = node.dropres, x.new_ones(1, 1)
    if dropres is None:
        return one, x.new_zeros(1, 1)
    if dropres.mode == "always":
        return one, one
    if dropres.mode == "weighted":
        return dropres.alpha * one, (1 - dropres.alpha) * one
    gate = draw_gate(x.shape, dropres.alpha, dropres.gate, None, x.device).squeeze(-1).to(x.dtype)
    return 1 - gate if dropres.mode == "replace" else one, gate


def _has_kernel(node: Discrete, x: Tensor) -> bool:
    usual = node.categorical.estimator == "gumbel_softmax" and node.categorical.noise == "gumbel"
    on_gpu = x.is_cuda and x.dtype == torch.float32
    if not (on_gpu and usual and node.training and kernels.available()) or is_observed():
        return False
    from ..kernels.discrete import fits  # it needs Triton

    return fits(node.dim, node.categories)
