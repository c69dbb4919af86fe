"""What the paper compares with: graph networks on states without digits, and an LSTM."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ....functional import one_hot
from .data.expressions import TOKENS
from .model.edges import Edges
from .model.latent_tree import classifier
from .model.lstm import TokenLSTM
from .model.messages import MessageLayers, Routes


class StateTree(nn.Module):
    """Arb. and Und. of the paper's table: the states are never made digits.

    The message from j to i depends on the current states of both, so there is one for each pair.
    """

    def __init__(
        self, edges: Edges, dim: int = 60, *, rounds: int = 5, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.edges, self.rounds = edges, rounds
        self.embedding = nn.Parameter(torch.randn(len(TOKENS), dim))
        self.message = MessageLayers(dim, dropout)
        self.classify = classifier(dim)

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        lengths: Int[Tensor, " batch"],
        parents: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch 10"]:
        """Logits of the answer."""
        _, answers = self.run(tokens, lengths, parents)
        return answers

    def run(
        self,
        tokens: Int[Tensor, "batch length"],
        lengths: Int[Tensor, " batch"],
        parents: Int[Tensor, "batch length"] | None = None,
        rounds: int | None = None,
    ) -> tuple[Float[Tensor, "batch length length"], Float[Tensor, "batch 10"]]:
        """Edges [batch, child, parent], and the logits of the answer."""
        edges = self.edges(tokens, lengths, parents)
        x = one_hot(tokens, len(TOKENS)) @ self.embedding
        rounds = rounds or self.rounds
        routes = Routes(edges)
        for k in range(1, rounds + 1):
            routes = routes.to_root() if k == rounds else routes
            count = routes.edges.shape[-1]
            receiver = self.message.of_receiver(x[:, :count])
            x = x[:, :count] + self.message(receiver, x, routes)
        return edges, self.classify(x[:, 0])


class Sequence(nn.Module):
    """The baseline without structure: an LSTM, and a classifier on its last state."""

    def __init__(self, dim: int = 60) -> None:
        super().__init__()
        self.lstm = TokenLSTM(len(TOKENS), dim)
        self.classify = classifier(dim)

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        lengths: Int[Tensor, " batch"],
        parents: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch 10"]:
        (states,) = self.lstm(tokens)
        last = (lengths - 1).view(-1, 1, 1).expand(-1, 1, states.shape[-1])
        logits: Tensor = self.classify(states.gather(1, last).squeeze(1))
        return logits
