"""Baselines of path queries: they go along a path without choices, or read it as a sentence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ....noise import dropout
from .model import Bidirectional, ComplEx, PathModel, Shape, uniform

LONGEST = 10
"""CoKE has places for paths of this length."""


class DistMult(Bidirectional):
    """Relations stretch: s * r1 * ... * rk, number by number."""

    def queries(self, source: Tensor, relations: Tensor, candidates: Sequence[Tensor]) -> Tensor:
        for relation in relations.unbind(1):  # prod waits for a count of zeros in its gradient
            source = source * relation
        return source

    def source_queries(self, target: Tensor, relation: Tensor) -> Tensor:
        return target * relation


class Bilinear(Bidirectional):
    """Relations are matrices: s W1 ... Wk (Guu et al., 2015)."""

    def initial_relations(self) -> nn.Parameter:
        width = self.shape.width  # vectors keep their length, on average
        return uniform(self.shape.relations, width, width, limit=(3 / width) ** 0.5)

    def queries(self, source: Tensor, relations: Tensor, candidates: Sequence[Tensor]) -> Tensor:
        for matrix in relations.unbind(1):
            source = torch.bmm(source.unsqueeze(1), matrix).squeeze(1)
        return source

    def source_queries(self, target: Tensor, relation: Tensor) -> Tensor:
        return torch.bmm(relation, target.unsqueeze(2)).squeeze(2)


class TransE(PathModel):
    """Relations are steps: an entity scores -|s + r1 + ... + rk - o|^2 (Bordes et al., 2013).

    As a product of vectors it is <(2q, -1), (o, |o|^2)> - |q|^2, and the last part is the same for
    all entities, so that neither ranks nor cross-entropy need it. Zeros follow, because products of
    vectors whose width is no multiple of 8 are several times slower on a GPU.
    """

    def queries(self, source: Tensor, relations: Tensor, candidates: Sequence[Tensor]) -> Tensor:
        end = source + relations.sum(1)
        return _padded(torch.cat([2 * end, -torch.ones_like(end[:, :1])], 1))

    def candidates(self) -> Tensor:
        squares = self.entities.square().sum(1, keepdim=True)
        return _padded(torch.cat([self.entities, squares], 1))


def _padded(rows: Float[Tensor, "rows width"]) -> Float[Tensor, "rows wider"]:
    return F.pad(rows, (0, -rows.shape[1] % 8))


class PathRNN(PathModel):
    """A plain recurrent net over the relations, whose first state is the source (Das et al., 2017).

    h <- tanh(W h + U r + b), and the last state is the query.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.state = nn.Linear(shape.width, shape.width)
        self.input = nn.Linear(shape.width, shape.width, bias=False)

    def queries(self, source: Tensor, relations: Tensor, candidates: Sequence[Tensor]) -> Tensor:
        for relation in relations.unbind(1):
            source = torch.tanh(self.state(source) + self.input(relation))
        return source


class ROP(PathModel):
    """A gated recurrent net that predicts an entity at each hop (Yin et al., 2018).

    The prediction after a relation is where the next one starts, and the last one is the query. As
    everywhere here, the entities on the way are not given, so only the last prediction is trained.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.gates = nn.Linear(2 * shape.width, 2 * shape.width)
        self.proposal = nn.Linear(2 * shape.width, shape.width)
        self.prediction = nn.Linear(shape.width, shape.width)

    def queries(self, source: Tensor, relations: Tensor, candidates: Sequence[Tensor]) -> Tensor:
        for relation in relations.unbind(1):
            reset, update = self.gates(torch.cat([source, relation], 1)).sigmoid().chunk(2, 1)
            proposed = torch.tanh(self.proposal(torch.cat([reset * source, relation], 1)))
            source = self.prediction(update * source + (1 - update) * proposed)
        return source


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
        words = dropout(words, self.dropout, self.training)
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
        weights = dropout(scores.softmax(-1), self.dropout, self.training)
        heard = self.join((weights @ values).transpose(1, 2).flatten(2))
        words = self.attended(words + dropout(heard, self.dropout, self.training))
        dense = self.second(F.gelu(self.first(words)))
        done: Tensor = self.done(words + dropout(dense, self.dropout, self.training))
        return done


BASELINES: dict[str, type[PathModel]] = {
    "complex": ComplEx,
    "distmult": DistMult,
    "bilinear": Bilinear,
    "transe": TransE,
    "rnn": PathRNN,
    "rop": ROP,
}
"""By the names that settings have for them; CoKE, which takes more settings, is apart."""
