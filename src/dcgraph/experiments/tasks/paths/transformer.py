"""A baseline that reads source and path as a sentence whose last word is to be guessed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from .composing import PathModel, Shape

LONGEST = 10
"""There are places for paths of this length."""


class CoKE(PathModel):
    """A transformer over [source, relations, MASK], in the style of CoKE (Wang et al., 2019).

    The query is what it makes of MASK. Places beyond the training paths are never trained.
    """

    def __init__(
        self, shape: Shape, *, layers: int = 6, heads: int = 4, dropout: float = 0.1
    ) -> None:
        super().__init__(shape)
        self.mask = nn.Parameter(torch.empty(shape.width).normal_(std=0.02))
        self.places = nn.Parameter(torch.empty(LONGEST + 2, shape.width).normal_(std=0.02))
        self.enter = nn.LayerNorm(shape.width)
        self.layers = nn.ModuleList(Layer(shape.width, heads, dropout) for _ in range(layers))
        self.leave = nn.Linear(shape.width, shape.width)
        self.compare = nn.LayerNorm(shape.width)
        self.dropout = dropout

    def queries(self, source: Tensor, relations: Tensor, candidates: Sequence[Tensor]) -> Tensor:
        if relations.shape[1] > LONGEST:
            raise ValueError(
                f"the path has {relations.shape[1]} relations, but this model reads {LONGEST} at "
                "most; ask for a shorter one, or take another model."
            )
        mask = self.mask.expand_as(source)
        words = torch.cat([source.unsqueeze(1), relations, mask.unsqueeze(1)], 1)
        words = self.enter(words + self.places[: words.shape[1]])
        words = F.dropout(words, self.dropout, self.training)
        for layer in self.layers:
            words = layer(words)
        query: Tensor = self.compare(F.gelu(self.leave(words[:, -1])))
        return query


class Layer(nn.Module):
    """Attention, then two dense layers; after each of them the sum with its input is normalised.

    Written out, because torch's own layer does not map over replicas.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.attend = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)
        self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.attended, self.done = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(
        self, words: Float[Tensor, "queries words width"]
    ) -> Float[Tensor, "queries words width"]:
        asked, keys, values = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.attend(words).chunk(3, -1)
        )
        scores = asked @ keys.transpose(-1, -2) / asked.shape[-1] ** 0.5
        weights = F.dropout(scores.softmax(-1), self.dropout, self.training)
        heard = self.join((weights @ values).transpose(1, 2).flatten(2))
        words = self.attended(words + F.dropout(heard, self.dropout, self.training))
        dense = self.second(F.gelu(self.first(words)))
        done: Tensor = self.done(words + F.dropout(dense, self.dropout, self.training))
        return done
