"""The paper's model: guess the parse tree, then compute along its edges in rounds of messages."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...functional import one_hot
from ...nodes import Discrete
from ...observe import watch
from .edges import Edges
from .expressions import TOKENS, ZERO
from .messages import Routes, messages

DIGITS = 10


def classifier(dim: int) -> nn.Sequential:
    """Pred of the paper: logits of the ten digits from a state."""
    return nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, DIGITS, bias=False))


def two_inputs(dim: int) -> tuple[nn.Linear, nn.Linear]:
    """One linear layer of two vectors, W [a; b] + c, as two: the first has the bias."""
    first, second = nn.Linear(dim, dim), nn.Linear(dim, dim, bias=False)
    bound = 1 / math.sqrt(2 * dim)  # that of a layer of width 2 dim
    for parameter in (first.weight, first.bias, second.weight):
        nn.init.uniform_(parameter, -bound, bound)
    return first, second


class LatentTree(nn.Module):
    """Rounds of messages between the tokens of an expression, along the edges of a tree.

    In each round every token j sends a message to its parent i, an MLP of the token of i and the
    state of j, and each state becomes a digit after all rounds but the last (a :class:`Discrete`
    node with the classifier as g and the embeddings of the digits as codebook).

    Args:
        edges: where the tree comes from.
        dim: width of the states.
        rounds: of messages, unless the call says otherwise.
        residual, gate: of the nodes, see :class:`Discrete`.
        dropout: on the hidden layer of the messages.
    """

    def __init__(
        self,
        edges: Edges,
        dim: int = 60,
        *,
        rounds: int = 5,
        residual: Literal["drop", "always", "weighted"] = "drop",
        gate: Literal["call", "example", "vector"] = "call",
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.edges = edges
        self.rounds = rounds
        self.embedding = nn.Parameter(torch.randn(len(TOKENS), dim))
        self.of_receiver, self.of_sender = two_inputs(dim)
        self.message = nn.Linear(dim, dim)
        self.dropout = dropout
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
        _, values = self.run(tokens, lengths, parents)
        return values[:, 0]

    def run(
        self,
        tokens: Int[Tensor, "batch length"],
        lengths: Int[Tensor, " batch"],
        parents: Int[Tensor, "batch length"] | None = None,
        rounds: int | None = None,
    ) -> tuple[Float[Tensor, "batch length length"], Float[Tensor, "batch length 10"]]:
        """Edges [batch, child, parent], and the logits of the value of every token at the end."""
        edges = self.edges(tokens, lengths, parents)
        routes = Routes(edges, self.edges.kinds(tokens), len(self.edges.received))
        # A product, because the gradient of a look-up is slow on GPUs.
        x = watch("embedding", one_hot(tokens, len(TOKENS)) @ self.embedding)
        receiver = self.of_receiver(self.embedding[self.edges.received])
        dropout = self.dropout if self.training else 0.0
        last = (rounds or self.rounds) - 1
        for k in range(last + 1):
            sender, message = self.of_sender(x), self.message
            x = x + messages(receiver, sender, message.weight, message.bias, routes, dropout)
            if k < last:
                x = watch(f"round {k + 1}", x)
                x = self.value(x, codebook=self.embedding[ZERO:])
        return edges, self.value.logits(x)
