"""Guessing the parse tree: whose parent is who."""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...._arguments import check_choice
from ....nodes import Categorical
from ....structures import TreeEdges
from .expressions import CLOSE, OPERATORS, TOKENS

Parents = Literal["tokens", "operators"]
Senders = Literal["tokens", "values"]
Structure = Literal["one_parent", "arborescence", "spanning_tree"]


class Edges(nn.Module):
    """Edges [batch, child, parent] of expressions: relaxed in training, hard in eval mode.

    A row belongs to a child; it is 0 where a token sends nothing, as padding never does.

    Args:
        encode: from tokens to scores of parents, [batch, child, parent]; None: the tree is given.
        parents: who can be a parent: all "tokens", or "operators" alone.
        earlier: whether a parent must stand before its child, and the root sends nothing. If not,
            as in the paper's code, a token may be its own parent, and the root's is random.
        senders: who sends to its parent: all "tokens"; or those with "values", which closing
            brackets are not. Needs ``earlier``.
        structure: "one_parent" lets each token choose by itself, as the paper; the others choose a
            whole tree, rooted in the first token, or without direction, in which case the edges
            are symmetric.
    """

    received: Tensor  # the tokens that can be a parent
    kind_of_token: Tensor  # which of these a token is, -1 for none

    def __init__(
        self,
        encode: nn.Module | None,
        *,
        parents: Parents = "tokens",
        earlier: bool = False,
        senders: Senders = "tokens",
        structure: Structure = "one_parent",
    ) -> None:
        super().__init__()
        check_choice("parents", parents, get_args(Parents))
        check_choice("senders", senders, get_args(Senders))
        check_choice("structure", structure, get_args(Structure))
        self.encode, self.earlier, self.structure = encode, earlier, structure
        self.senders = senders
        self.choice: Categorical | None = None
        if encode is not None:
            self.choice = Categorical() if structure == "one_parent" else TreeEdges(structure)
        received = range(len(TOKENS)) if parents == "tokens" else list(OPERATORS)
        kinds = torch.full((len(TOKENS),), -1)
        kinds[list(received)] = torch.arange(len(received))
        self.register_buffer("received", torch.tensor(list(received)), persistent=False)
        self.register_buffer("kind_of_token", kinds, persistent=False)

    def forward(
        self,
        tokens: Int[Tensor, "batch length"],
        lengths: Int[Tensor, " batch"],
        parents: Int[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length length"]:
        """``parents`` is the tree, for a model that is given it."""
        length = tokens.shape[1]
        place = torch.arange(length, device=tokens.device)
        used = place < lengths.unsqueeze(1)
        if self.encode is None or self.choice is None:
            assert parents is not None, "without an encoder the tree is needed"
            return F.one_hot(parents.clamp(min=0), length) * (parents >= 0).float().unsqueeze(-1)
        scores: Tensor = self.encode(tokens)
        if isinstance(self.choice, TreeEdges):
            tree: Tensor = self.choice(scores, used=used)
            return tree
        if not self.earlier:
            # As in the paper's code, where the root has no scores of its own.
            scores = scores * (place > 0).to(scores.dtype).unsqueeze(-1)
            free: Tensor = self.choice(scores, mask=used.unsqueeze(1))
            return free * used.unsqueeze(-1)
        may_be_parent = self.kinds(tokens).unsqueeze(1) >= 0
        mask = may_be_parent & (place < place.unsqueeze(-1))
        sends = used & (place > 0)
        if self.senders == "values":
            sends = sends & (tokens != CLOSE)
        # A row that sends nothing may choose anything: an empty choice would be an error.
        chosen: Tensor = self.choice(scores, mask=mask | ~sends.unsqueeze(-1))
        return chosen * sends.unsqueeze(-1)

    def kinds(self, tokens: Int[Tensor, "batch length"]) -> Int[Tensor, "batch length"]:
        """Which of the tokens that can be a parent each one is; -1 for none."""
        return self.kind_of_token[tokens]
