"""How a path becomes a query: models that go from a source along relations, without choices.

All models of path queries have one shape. They turn (source, path) into a query vector, and every
entity has a vector to be compared with it: the score of an entity is the product of the two. So
loss and scores are the same for all of them, and none makes a matrix of scores in training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from .... import kernels
from ....codebook import cross_entropy
from .sharing import shared

PRECISIONS = {"float32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
"""What products with the matrix of entities are computed in."""


@dataclass(frozen=True)
class Shape:
    """What all models are told.

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


class PathModel(nn.Module, ABC):
    """From sources and paths of one length to a score for each entity."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.entities = _uniform(shape.entities, shape.width, limit=shape.init)
        self.relations = self.initial_relations()

    def initial_relations(self) -> nn.Parameter:
        return _uniform(self.shape.relations, self.shape.width, limit=self.shape.init)

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
        candidates = self.candidates() if candidates is None else candidates
        start = F.embedding(source.long(), self.entities)
        return self._walk(start, path, [candidates] * path.shape[1])

    def _walk(self, start: Tensor, path: Tensor, candidates: Sequence[Tensor]) -> Tensor:
        start = F.dropout(start, self.shape.subject_dropout, self.training)
        relations = self.relations.index_select(0, path.long().flatten()).unflatten(0, path.shape)
        relations = F.dropout(relations, self.shape.relation_dropout, self.training)
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
        dropout = self.shape.object_dropout  # of the answers alone
        rows, tables = shared(candidates, source.long(), path.shape[1], dtype, dropout)
        query = self._walk(rows[:, : self.shape.width], path, tables).to(dtype)
        loss = cross_entropy(query, tables[-1], target.long())
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
        ends = self.entities[torch.stack([source, target], 1).long()]
        along = self.relations[path.long()]
        of_ends, of_relations = ends.square().sum((1, 2)), along.square().flatten(1).sum(1)
        return self.shape.l2_entities * of_ends + self.shape.l2_relations * of_relations


class Reversible(PathModel):
    """A model whose score of a single relation is, in the source too, a product of vectors."""

    @abstractmethod
    def queries_back(
        self, target: Float[Tensor, "queries width"], relation: Float[Tensor, "queries ..."]
    ) -> Float[Tensor, "queries compared"]:
        """Whose product with a candidate is the score of the target, one relation away from it."""


def _uniform(*sizes: int, limit: float) -> nn.Parameter:
    return nn.Parameter(torch.empty(*sizes).uniform_(-limit, limit))


def complex_product(
    a: Float[Tensor, "*batch width"],
    b: Float[Tensor, "*batch width"],
    dtype: torch.dtype | None = None,
) -> Float[Tensor, "*batch width"]:
    """The products of complex numbers; a vector has all real parts, then all imaginary ones.

    Re<s, r, conj(o)> is then the plain product of the vectors complex_product(s, r) and o. The
    result has that dtype, if one is given.

    >>> complex_product(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0]))  # (1 + 2i) * i
    tensor([-2.,  1.])
    """
    dtype = dtype or torch.promote_types(a.dtype, b.dtype)
    if a.is_cuda and kernels.available() and not torch.compiler.is_compiling():
        from .kernels.complex import DTYPES, ComplexProduct

        if {a.dtype, b.dtype, dtype} <= set(DTYPES):
            multiply: Any = ComplexProduct.apply
            product: Tensor = multiply(a, b, dtype)
            return product
    (a_re, a_im), (b_re, b_im) = a.chunk(2, -1), b.chunk(2, -1)
    return torch.cat([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], -1).to(dtype)


class ComplEx(Reversible):
    """Relations turn and stretch complex numbers: s * r1 * ... * rk (Trouillon et al., 2016)."""

    def queries(self, source: Tensor, relations: Tensor, candidates: Sequence[Tensor]) -> Tensor:
        for relation in relations.unbind(1):
            source = complex_product(source, relation)
        return source

    def queries_back(self, target: Tensor, relation: Tensor) -> Tensor:
        real, imaginary = relation.chunk(2, -1)
        return complex_product(target, torch.cat([real, -imaginary], -1))


class DistMult(Reversible):
    """Relations stretch: s * r1 * ... * rk, number by number."""

    def queries(self, source: Tensor, relations: Tensor, candidates: Sequence[Tensor]) -> Tensor:
        for relation in relations.unbind(1):  # prod waits for a count of zeros in its gradient
            source = source * relation
        return source

    def queries_back(self, target: Tensor, relation: Tensor) -> Tensor:
        return target * relation


class Bilinear(Reversible):
    """Relations are matrices: s W1 ... Wk (Guu et al., 2015)."""

    def initial_relations(self) -> nn.Parameter:
        width = self.shape.width  # vectors keep their length, on average
        return _uniform(self.shape.relations, width, width, limit=(3 / width) ** 0.5)

    def queries(self, source: Tensor, relations: Tensor, candidates: Sequence[Tensor]) -> Tensor:
        for matrix in relations.unbind(1):
            source = torch.bmm(source.unsqueeze(1), matrix).squeeze(1)
        return source

    def queries_back(self, target: Tensor, relation: Tensor) -> Tensor:
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
