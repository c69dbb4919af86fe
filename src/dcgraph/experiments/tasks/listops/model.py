"""The paper's model: guess the parse tree, then compute along its edges in rounds of messages."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...._observe import watch
from ....functional import one_hot
from ....nodes import Discrete
from .digits import DIGITS, as_digits, classifier
from .edges import Edges
from .expressions import TOKENS, ZERO
from .messages import MessageLayers, Routes


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
            state. So its value is computed from those of its children alone, which are final when
            it is computed for the last time.
        residual, gate: of the nodes, see :class:`Discrete`.
        dropout: on the hidden layer of the messages.
        masks: what has a dropout mask of its own: a sender and a "token" it sends to, or each
            "pair" of sender and receiver, as in the paper, which takes twice the time.
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
    ) -> None:
        super().__init__()
        self.edges = edges
        self.rounds, self.restart, self.masks = rounds, restart, masks
        self.embedding = nn.Parameter(torch.randn(len(TOKENS), dim))
        self.message = MessageLayers(dim, dropout)
        self.value = Discrete(
            dim, DIGITS, g=classifier(dim), codebook="given", residual=residual, gate=gate
        )

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
