"""Models of path queries: their common base, ComplEx, and the discrete ComplEx of the paper.

All models have one shape. They turn (source, path) into a query vector, and every entity has a
vector to be compared with it: the score of an entity is the product of the two. So loss and scores
are the same for all of them, and none makes a matrix of scores in training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ....codebook import cross_entropy
from ....distributed import shard_rows
from ....distributed._shards import Shard
from ....nodes import LARGE, Discrete
from ....noise import Distribution, draw_gumbel, drawn_alike, dropout
from ....residual import Gate
from .operators import complex_product, rows_of_all, table_uses

PRECISIONS = {"float32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
"""What products with the matrix of entities are computed in."""


@dataclass(frozen=True)
class Shape:
    """What all models are given.

    ``width`` is the number of real numbers in a vector. The three kinds of dropout are those of the
    paper: of the source's vector, of the vectors that answers are compared with, of relations.
    """

    entities: int
    relations: int  # inverses among them
    width: int
    init: float = 1.0  # vectors start in U(-init, init)
    subject_dropout: float = 0.0
    object_dropout: float = 0.0
    relation_dropout: float = 0.0
    l2_entities: float = 0.0
    l2_relations: float = 0.0
    precision: str = "float32"
    shard: Shard | None = None  # which entities this rank has, if not all

    @property
    def own(self) -> range | None:
        """The same as numbers of entities."""
        return None if self.shard is None else shard_rows(self.entities, self.shard.group)

    @property
    def group(self) -> dist.ProcessGroup | None:
        return None if self.shard is None else self.shard.group


class PathModel(nn.Module, ABC):
    """From sources and paths of one length to a score for each entity."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.entities = uniform(shape.entities, shape.width, limit=shape.init, own=shape.own)
        self.relations = self.initial_relations()

    def initial_relations(self) -> nn.Parameter:
        return uniform(self.shape.relations, self.shape.width, limit=self.shape.init)

    @abstractmethod
    def queries(
        self,
        source: Float[Tensor, "queries width"],
        relations: Float[Tensor, "queries hops ..."],
        candidates: Sequence[Float[Tensor, "entities compared"]],
    ) -> Float[Tensor, "queries compared"]:
        """Where paths lead from these vectors of sources along these of relations.

        A model that chooses entities on the way chooses among the candidates: for each hop there is
        the table of all of them, which for the last one are the answers.
        """

    def candidates(self) -> Float[Tensor, "entities compared"]:
        """What a query is compared with, for every entity; the entity's vector comes first."""
        return self.entities

    def query(
        self,
        source: Int[Tensor, " queries"],
        path: Int[Tensor, "queries hops"],
        candidates: Float[Tensor, "entities compared"] | None = None,
    ) -> Float[Tensor, "queries compared"]:
        """The vectors to compare the candidates with; these are the model's own if not given."""
        if self.shape.shard is not None:
            raise ValueError(_ONLY_TRAINS)
        candidates = self.candidates() if candidates is None else candidates
        start = F.embedding(source.long(), self.entities)
        return self._compose(start, path, [candidates] * path.shape[1])

    def _compose(self, start: Tensor, path: Tensor, candidates: Sequence[Tensor]) -> Tensor:
        start = dropout(start, self.shape.subject_dropout, self.training)
        relations = self.relations.index_select(0, path.long().flatten()).unflatten(0, path.shape)
        relations = dropout(relations, self.shape.relation_dropout, self.training)
        return self.queries(start, relations, candidates)

    def forward(
        self, source: Int[Tensor, " queries"], path: Int[Tensor, "queries hops"]
    ) -> Float[Tensor, "queries entities"]:
        """Scores of all entities, in float32."""
        candidates = self.candidates()
        return F.linear(self.query(source, path, candidates), candidates)

    def loss(
        self,
        source: Int[Tensor, " queries"],
        path: Int[Tensor, "queries hops"],
        target: Int[Tensor, " queries"],
    ) -> Float[Tensor, " queries"]:
        """Cross-entropy of the target against all entities, and in training the penalty."""
        candidates = self.candidates()
        if not self.training:
            return cross_entropy(self.query(source, path, candidates), candidates, target.long())
        dtype = PRECISIONS[self.shape.precision]
        dropped = self.shape.object_dropout  # only of the answers
        rows, tables = table_uses(
            candidates, source.long(), path.shape[1], dtype, dropped, self.shape.shard
        )
        query = self._compose(rows[:, : self.shape.width], path, tables).to(dtype)
        loss = cross_entropy(query, tables[-1], target.long(), group=self.shape.group)
        if self.shape.l2_entities or self.shape.l2_relations:
            loss = loss + self.penalty(source, path, target)
        return loss

    def penalty(
        self,
        source: Int[Tensor, " queries"],
        path: Int[Tensor, "queries hops"],
        target: Int[Tensor, " queries"],
    ) -> Float[Tensor, " queries"]:
        """L2 of what a query uses: its source and target, and its relations."""
        both, shard = torch.stack([source, target], 1).long(), self.shape.shard
        ends = self.entities[both] if shard is None else rows_of_all(self.entities, both, shard)
        along = self.relations[path.long()]
        of_ends, of_relations = ends.square().sum((1, 2)), along.square().flatten(1).sum(1)
        return self.shape.l2_entities * of_ends + self.shape.l2_relations * of_relations


_ONLY_TRAINS = (
    "the entities of this model are divided over ranks, which can only train; gather them first."
)


class Bidirectional(PathModel):
    """A model whose score of a triple is linear in the source too, for bidirectional scoring."""

    @abstractmethod
    def source_queries(
        self, target: Float[Tensor, "queries width"], relation: Float[Tensor, "queries ..."]
    ) -> Float[Tensor, "queries compared"]:
        """Whose product with a candidate is the score of (candidate, relation, target)."""


def uniform(*sizes: int, limit: float, own: range | None = None) -> nn.Parameter:
    """Or only some rows of it: the others are drawn, too, but never all of them at a time."""
    if own is None:
        return nn.Parameter(torch.empty(*sizes).uniform_(-limit, limit))
    kept = torch.empty(len(own), *sizes[1:])
    for first in range(0, sizes[0], _DRAWN_AT_ONCE):
        count = min(_DRAWN_AT_ONCE, sizes[0] - first)
        drawn = torch.empty(count, *sizes[1:]).uniform_(-limit, limit)
        start, stop = max(first, own.start), min(first + count, own.stop)
        if start < stop:
            kept[start - own.start : stop - own.start] = drawn[start - first : stop - first]
    return nn.Parameter(kept)


_DRAWN_AT_ONCE = 4096  # rows


class ComplEx(Bidirectional):
    """Relations turn and stretch complex numbers: s * r1 * ... * rk (Trouillon et al., 2016)."""

    def queries(self, source: Tensor, relations: Tensor, candidates: Sequence[Tensor]) -> Tensor:
        for relation in relations.unbind(1):
            source = complex_product(source, relation)
        return source

    def source_queries(self, target: Tensor, relation: Tensor) -> Tensor:
        real, imaginary = relation.chunk(2, -1)
        return complex_product(target, torch.cat([real, -imaginary], -1))


class DiscreteComplEx(ComplEx):
    r"""The discrete-continuous ComplEx of the paper.

    After every relation except the last, the product :math:`u = s r` chooses an entity, with the
    scores of ComplEx as logits, and the next relation starts from that entity's vector: a
    :class:`dcgraph.Discrete` node whose codebook is the matrix of entities. In training DropRes
    adds s, the vector before the relation. After the last relation all entities are scored.

    The model has no parameters beyond those of ComplEx. In eval mode every hop is at an entity.

    With ``top_k``, a hop of training chooses among that many entities of the highest scores, so
    that noise cannot carry it to any of the others; that needs the matrix of all scores.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        estimator: str = "gumbel_softmax",
        noise: Distribution = "gumbel",
        gate: Gate = "call",
        top_k: int = 0,
    ) -> None:
        super().__init__(shape)
        self.top_k = top_k
        self.hop = Discrete(
            *(shape.width, shape.entities),
            codebook="given",
            estimator=estimator,
            noise=noise,
            gate=gate,
            shard=shape.group,
        )

    def queries(
        self,
        source: Float[Tensor, "queries width"],
        relations: Float[Tensor, "queries hops width"],
        candidates: Sequence[Float[Tensor, "entities width"]],
    ) -> Float[Tensor, "queries width"]:
        *others, last = relations.unbind(1)
        at = source
        for relation, rows in zip(others, candidates[:-1], strict=True):
            u = complex_product(at, relation, rows.dtype)
            mask = self._top(u, rows) if self.training and self.top_k else None
            bypass, noise = at.to(rows.dtype), self._noise_of_few(u)
            at = self.hop(u, residual=bypass, codebook=rows, mask=mask, noise=noise)
        return complex_product(at, last, candidates[-1].dtype)

    def _noise_of_few(self, u: Tensor) -> Float[Tensor, "queries own_rows"] | None:
        """What one process draws for few entities, where a hop there has all logits in a matrix."""
        own = self.shape.own
        if not self.training or own is None or self.shape.entities >= LARGE:
            return None
        with drawn_alike(self.shape.group):
            noise = draw_gumbel((len(u), self.shape.entities), None, torch.float32, u.device)
        reversed = self.hop.categorical.noise == "reversed"
        return (-noise if reversed else noise)[:, own.start : own.stop]

    @torch.no_grad()
    def _top(self, u: Tensor, rows: Tensor) -> Bool[Tensor, "queries entities"]:
        scores = F.linear(u, rows).float()
        count = min(self.top_k, len(rows))
        return scores >= scores.topk(count, -1).values[:, -1:]
