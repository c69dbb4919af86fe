"""What the paper compares with: states without digits, and an LSTM; and a rule, not learned."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ....functional import one_hot
from .data.expressions import CLOSE, MAX, MIN, TOKENS, ZERO
from .model.edges import Edges
from .model.latent_tree import DIGITS, classifier
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


class NearestOperator(nn.Module):
    """A rule that reads no bracket: a token's parent is the nearest operator before it.

    The operators are exact, and nothing is learned. So it says how much of the tree and of the
    answers is had without parsing.
    """

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        lengths: Int[Tensor, " batch"],
        parents: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch 10"]:
        """The answer, as logits that are 1 for it and 0 for all others."""
        _, values = self.run(tokens)
        return one_hot(values[:, 0], DIGITS)

    def run(
        self, tokens: Int[Tensor, "batch length"]
    ) -> tuple[Int[Tensor, "batch length"], Int[Tensor, "batch length"]]:
        """The parent of each token, -1 for the root; and the value of each, which ] has not."""
        place = torch.arange(tokens.shape[1], device=tokens.device)
        operator = (tokens > CLOSE) & (tokens < ZERO)
        latest = torch.where(operator, place, -1).cummax(1).values
        parents = torch.cat([torch.full_like(latest[:, :1], -1), latest[:, :-1]], 1)
        edges = one_hot(parents.clamp(min=0), len(place)) * (parents >= 0).float().unsqueeze(-1)
        digits = one_hot((tokens - ZERO).clamp(min=0), DIGITS)
        # How often each digit is among the arguments of a token; operators come when computed.
        arguments = edges.mT @ (digits * (tokens >= ZERO).float().unsqueeze(-1))
        values = []
        for k in reversed(range(len(place))):  # children stand behind their parents
            computed = _value(tokens[:, k], arguments[:, k])
            values.append(torch.where(operator[:, k], computed, (tokens[:, k] - ZERO).clamp(min=0)))
            made = one_hot(values[-1], DIGITS) * operator[:, k].float().unsqueeze(-1)
            arguments = arguments + edges[:, k].unsqueeze(-1) * made.unsqueeze(1)
        return parents, torch.stack(values[::-1], 1)


def _value(
    operators: Int[Tensor, " batch"], arguments: Float[Tensor, "batch 10"]
) -> Int[Tensor, " batch"]:
    """MIN, MAX or MED of arguments, of which there are so many of each digit."""
    so_far = arguments.cumsum(-1)
    count = so_far[:, -1]

    def in_order(k: Tensor) -> Tensor:
        return (so_far <= k.unsqueeze(-1)).sum(-1).clamp(max=DIGITS - 1)

    middle = in_order((count - 1) // 2) + in_order(count // 2)
    greatest = torch.where(operators == MAX, in_order(count - 1), middle // 2)
    return torch.where(operators == MIN, in_order(torch.zeros_like(count)), greatest)
