"""The paper's model: guess the parse tree, then compute along its edges in rounds of messages."""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...checks import check_choice
from ...functional import one_hot
from ...nodes import Categorical, Discrete
from ...observe import watch
from .expressions import OPERATORS, TOKENS, ZERO
from .messages import Routes, messages
from .recurrent import TokenLSTM

DIGITS = 10
Receivers = Literal["tokens", "operators"]


class LatentTree(nn.Module):
    """Edges from an encoder, then rounds of messages between the tokens of an expression.

    In each round every token j sends a message to its parent i, an MLP of the token of i and the
    state of j, and each state becomes a digit after all rounds but the last (a :class:`Discrete`
    node with the classifier as g and the embeddings of the digits as codebook).

    Args:
        encoder: from tokens to scores of parents, [batch, child, parent]; None: the tree is given.
        dim: width of the states.
        rounds: of messages, unless the call says otherwise.
        receivers: who can be a parent: all "tokens", or "operators" alone.
        earlier: whether a parent must stand before its child, and the root sends nothing. If not,
            as in the paper's code, a token may be its own parent, and the root's is random.
        residual, gate: of the nodes, see :class:`Discrete`.
        dropout: on the hidden layer of the messages.
    """

    received: Tensor  # the tokens that can be a parent
    kind_of_token: Tensor  # which of these a token is, -1 for none

    def __init__(
        self,
        encoder: nn.Module | None,
        dim: int = 60,
        *,
        rounds: int = 5,
        receivers: Receivers = "tokens",
        earlier: bool = False,
        residual: Literal["drop", "always", "weighted"] = "drop",
        gate: Literal["call", "example", "vector"] = "call",
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        check_choice("receivers", receivers, get_args(Receivers))
        self.encode = encoder
        self.rounds, self.earlier = rounds, earlier
        received = range(len(TOKENS)) if receivers == "tokens" else OPERATORS
        kinds = torch.full((len(TOKENS),), -1)
        kinds[list(received)] = torch.arange(len(received))
        self.register_buffer("received", torch.tensor(list(received)), persistent=False)
        self.register_buffer("kind_of_token", kinds, persistent=False)
        self.edge = Categorical()
        self.embedding = nn.Parameter(torch.randn(len(TOKENS), dim))
        self.of_receiver = nn.Linear(dim, dim)
        self.of_sender = nn.Linear(dim, dim, bias=False)
        self.message = nn.Linear(dim, dim)
        self.dropout = dropout
        classifier = nn.Sequential(
            nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, DIGITS, bias=False)
        )
        self.value = Discrete(
            dim, DIGITS, g=classifier, codebook="given", residual=residual, gate=gate
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
        # A product, because the gradient of a look-up is slow on GPUs.
        x = watch("embedding", one_hot(tokens, len(TOKENS)) @ self.embedding)
        routes = Routes(edges, self._kinds(tokens), len(self.received))
        receiver = self.of_receiver(self.embedding[self.received])
        dropout = self.dropout if self.training else 0.0
        last = (rounds or self.rounds) - 1
        for k in range(last + 1):
            sender, message = self.of_sender(x), self.message
            x = x + messages(receiver, sender, message.weight, message.bias, routes, dropout)
            if k < last:
                x = watch(f"round {k + 1}", x)
                x = self.value(x, codebook=self.embedding[ZERO:])
        return edges, self.value.logits(x)

    def edges(
        self,
        tokens: Int[Tensor, "batch length"],
        lengths: Int[Tensor, " batch"],
        parents: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length length"]:
        """Whose parent is who: a row for each child; none where a token sends nothing."""
        length = tokens.shape[1]
        place = torch.arange(length, device=tokens.device)
        used = place < lengths.unsqueeze(1)
        if self.encode is None:
            assert parents is not None, "a model without encoder needs the tree"
            return F.one_hot(parents.clamp(min=0), length) * (parents >= 0).float().unsqueeze(-1)
        scores: Tensor = self.encode(tokens)
        if not self.earlier:
            # As in the paper's code, where the root has no scores of its own.
            scores = scores * (place > 0).to(scores.dtype).unsqueeze(-1)
            free: Tensor = self.edge(scores, mask=used.unsqueeze(1))
            return free * used.unsqueeze(-1)
        may_be_parent = self._kinds(tokens).unsqueeze(1) >= 0
        mask = may_be_parent & (place < place.unsqueeze(-1))
        sends = used & (place > 0)
        # A row that sends nothing may choose anything: an empty choice would be an error.
        chosen: Tensor = self.edge(scores, mask=mask | ~sends.unsqueeze(-1))
        return chosen * sends.unsqueeze(-1)

    def _kinds(self, tokens: Int[Tensor, "batch length"]) -> Int[Tensor, "batch length"]:
        """Which of the receivers each token is; -1 for none."""
        return self.kind_of_token[tokens]


class Sequence(nn.Module):
    """The baseline without structure: an LSTM, and a classifier on its last state."""

    def __init__(self, dim: int = 60) -> None:
        super().__init__()
        self.lstm = TokenLSTM(len(TOKENS), dim)
        self.classify = nn.Sequential(
            nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, DIGITS, bias=False)
        )

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
