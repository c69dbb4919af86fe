"""Answers that one can act on: each with a mark, its evidence and a calibrated probability.

Queries are decoded by beam search, see :mod:`.decoding`, among the candidates of every relation on
the way, see :mod:`.candidates`. An answer has a mark, which says what the graph knows of it
(:mod:`.known`), and if it is new, the probability that it is right (:mod:`.calibration`).

The **evidence** of an answer is a triple for each relation. Of a known answer that is a way of
known triples to it, in the graph of the split that its mark names; from the end to the start it
takes the entity with the largest share. Of a new answer it is the way that gave most of its share,
and at least one of its triples is a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int8, Int64
from torch import Tensor

from ..data.graph import KnowledgeGraph, Queries, inverse, portions, query_of
from ..evaluation import Score
from .calibration import Calibration
from .candidates import Candidates
from .known import NEW, KnownTriples

GUESS = "guess"
"""The mark of a triple that no split has."""

_AT_ONCE = 1 << 22  # shares that are kept at once, for each hop
_NEIGHBOURS = 1 << 22  # entities that are looked at together


@dataclass(frozen=True)
class Stop:
    """An entity on the way, after one of the relations except the last."""

    entity: str
    mark: str
    share: float
    probability: float | None  # that it is right, of a new one


@dataclass(frozen=True)
class Step:
    """A triple of the evidence; its relation may be inverse."""

    source: str
    relation: str
    target: str
    mark: str  # the split that has it, or a guess


@dataclass(frozen=True)
class Answer:
    entity: str
    mark: str
    share: float  # of all candidates' weight
    probability: float | None  # that it is right, of a new one
    evidence: tuple[Step, ...]


@dataclass(frozen=True)
class Answered:
    """A query and its answers, the best first."""

    source: str
    path: tuple[str, ...]
    candidates: int  # of the last relation
    known: dict[str, int]  # how many answers each split brings, by its mark
    hops: tuple[tuple[Stop, ...], ...]
    answers: tuple[Answer, ...]


@dataclass(frozen=True, eq=False)
class Beams:
    """Where queries have led after a relation."""

    shares: Float[Tensor, "queries entities"]
    """Logarithms; they sum to one. Of an entity that is no candidate -inf."""
    kept: Int64[Tensor, "queries width"]
    """The entities with the largest shares, the largest first."""
    before: Int64[Tensor, "queries entities"]
    """The entity before that gave most of each share."""


@dataclass(frozen=True, eq=False)
class Answerer:
    """What answers queries: a model and what goes with it.

    ``steps`` are log-probabilities of the answers to single relations, see
    :func:`.decoding.step_scores`.
    """

    graph: KnowledgeGraph
    known: KnownTriples
    steps: Score
    candidates: Candidates
    width: int
    calibration: Calibration | None = None  # None: not for these steps

    @cached_property
    def entity_numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.graph.entities)}

    @cached_property
    def relation_numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.graph.relation_names)}

    def ask(self, entity: str, path: str, top: int = 10, *, new: bool = False) -> Answered:
        """One query by names; relations between commas, of which **name is an inverse."""
        (answered,) = self.answer(query_of(self.graph, entity, path), top, new=new)
        return answered

    @torch.no_grad()
    def answer(
        self, queries: Queries, top: int, shown: int | None = None, new: bool = False
    ) -> list[Answered]:
        """Answers to queries of one length, or only the new ones.

        Of the entities on the way ``shown`` are listed, or all that are kept.
        """
        block = max(1, _AT_ONCE // (len(self.graph.entities) * queries.hops))
        return [
            one
            for first in range(0, len(queries), block)
            for one in self._answer(queries[first : first + block], top, shown, new)
        ]

    def _answer(self, queries: Queries, top: int, shown: int | None, new: bool) -> list[Answered]:
        beams = search(self.steps, self.candidates, queries, self.width)
        marks = self.known.reached(queries)
        chances = [
            self._probabilities(hops, beam.shares, mark)
            for hops, (beam, mark) in enumerate(zip(beams, marks, strict=True), 1)
        ]
        last = beams[-1]
        asked = last.shares
        if new:
            asked = asked.masked_fill(marks[-1] < len(self.known.marks), -torch.inf)
        best = asked.topk(min(top, asked.shape[1]), 1)
        row, column = (best.values > -torch.inf).nonzero(as_tuple=True)
        entity = best.indices[row, column]
        ways = evidence(self.known, queries, beams, marks, row, entity)
        stops = self._stops(last.shares, marks[-1], chances[-1], row, entity)
        answers: list[list[Answer]] = [[] for _ in range(len(queries))]
        steps = self._steps(queries, row, ways)
        for query, stop, way in zip(row.tolist(), stops, steps, strict=True):
            answers[query].append(Answer(stop.entity, stop.mark, stop.share, stop.probability, way))
        hops = [
            self._kept(beam, mark, chance, shown)
            for beam, mark, chance in zip(beams[:-1], marks[:-1], chances[:-1], strict=True)
        ]
        known = torch.stack([(marks[-1] == k).sum(1) for k in range(len(self.known.marks))], 1)
        found = zip(
            queries.source.tolist(), queries.path.tolist(), known.tolist(), answers, strict=True
        )
        return [
            Answered(
                self.graph.entities[source],
                tuple(self.graph.relation_names[relation] for relation in path),
                self.candidates.count(path[-1]),
                dict(zip(self.known.marks, counts, strict=True)),
                tuple(after[query] for after in hops),
                tuple(own),
            )
            for query, (source, path, counts, own) in enumerate(found)
        ]

    def _kept(
        self, beam: Beams, mark: Tensor, chance: Tensor | None, shown: int | None
    ) -> list[tuple[Stop, ...]]:
        """For each query the first of the entities that are kept."""
        kept = beam.kept[:, :shown]
        row, column = (beam.shares.gather(1, kept) > -torch.inf).nonzero(as_tuple=True)
        found: list[list[Stop]] = [[] for _ in range(len(kept))]
        stops = self._stops(beam.shares, mark, chance, row, kept[row, column])
        for query, stop in zip(row.tolist(), stops, strict=True):
            found[query].append(stop)
        return [tuple(some) for some in found]

    def _probabilities(
        self, hops: int, shares: Float[Tensor, "q n"], mark: Int8[Tensor, "q n"]
    ) -> Float[Tensor, "q n"] | None:
        if self.calibration is None or not self.calibration.of:
            return None
        return self.calibration.probabilities(hops, shares, mark == len(self.known.marks))

    def _stops(
        self,
        shares: Float[Tensor, "q n"],
        mark: Int8[Tensor, "q n"],
        chance: Float[Tensor, "q n"] | None,
        row: Int64[Tensor, " some"],
        entity: Int64[Tensor, " some"],
    ) -> list[Stop]:
        names = (*self.known.marks, NEW)
        marks = [names[number] for number in mark[row, entity].tolist()]
        probabilities: list[float | None] = [None] * len(marks)
        if chance is not None:
            said = chance[row, entity].tolist()
            probabilities = [p if m == NEW else None for p, m in zip(said, marks, strict=True)]
        return [
            Stop(self.graph.entities[number], name, share, probability)
            for number, name, share, probability in zip(
                entity.tolist(),
                marks,
                shares[row, entity].exp().tolist(),
                probabilities,
                strict=True,
            )
        ]

    def _steps(
        self, queries: Queries, row: Int64[Tensor, " n"], ways: Int64[Tensor, "n stops"]
    ) -> list[tuple[Step, ...]]:
        """The triples of ways from sources to answers."""
        path = queries.path[row].long()
        head, tail = ways[:, :-1].flatten(), ways[:, 1:].flatten()
        marks = self.known.of_triples(head, path.flatten(), tail).view(path.shape).tolist()
        entities, relations = self.graph.entities, self.graph.relation_names
        names = (*self.known.marks, GUESS)
        return [
            tuple(
                Step(entities[way[k]], relations[relation], entities[way[k + 1]], names[mark])
                for k, (relation, mark) in enumerate(zip(along, found, strict=True))
            )
            for way, along, found in zip(ways.tolist(), path.tolist(), marks, strict=True)
        ]


def among(steps: Score, candidates: Candidates) -> Score:
    """Steps of which only those to candidates are taken; their probabilities are one together.

    Where there are no candidates, all entities are.
    """

    def taken(source: Tensor, path: Tensor) -> Tensor:
        mask = candidates.mask(path[:, 0].long())
        mask = mask | ~mask.any(1, keepdim=True)
        return steps(source, path).masked_fill(~mask, -torch.inf).log_softmax(1)

    return taken


@torch.no_grad()
def search(steps: Score, candidates: Candidates, queries: Queries, width: int) -> list[Beams]:
    """A beam search that remembers where shares came from; the beams are on the CPU."""
    taken = among(steps, candidates)
    at, weight = queries.source.unsqueeze(1), torch.zeros(len(queries), 1)
    weight = weight.to(queries.source.device)
    found = []
    for relation in queries.path.unbind(1):
        total = largest = before = None
        for entity, share in zip(at.unbind(1), weight.unbind(1), strict=True):
            part = taken(entity, relation.unsqueeze(1)) + share.unsqueeze(1)
            came = entity.long().unsqueeze(1)
            if total is None or largest is None or before is None:
                total, largest, before = part, part, came.expand(part.shape).contiguous()
            else:
                total = torch.logaddexp(total, part)
                before = torch.where(part > largest, came, before)
                largest = torch.maximum(largest, part)
        assert total is not None and before is not None
        shares = total.log_softmax(1)
        kept = shares.topk(min(width, shares.shape[1]), 1)
        found.append(Beams(shares.cpu(), kept.indices.cpu(), before.cpu()))
        at, weight = kept.indices.to(queries.source.dtype), kept.values.log_softmax(1)
    return found


def evidence(
    known: KnownTriples,
    queries: Queries,
    beams: Sequence[Beams],
    marks: Sequence[Int8[Tensor, "queries entities"]],
    row: Int64[Tensor, " n"],
    answer: Int64[Tensor, " n"],
) -> Int64[Tensor, "n stops"]:
    """For each answer to a query (its row) the entities on the way, from source to answer."""
    mark = marks[-1][row, answer].long()
    ways, at = [answer], answer
    for hop in reversed(range(1, queries.hops)):
        previous = beams[hop].before[row, at]
        for number, graph in enumerate(known.graphs):
            some = (mark == number).nonzero().flatten()
            back = inverse(queries.path[row[some], hop].long(), graph.relations // 2)
            step = graph.find(at[some], back)
            for few in portions(graph.ends.sizes_of(step), _NEIGHBOURS):
                chosen = some[few]
                ends = graph.ends.take(step[few])
                owner, entity = ends.row_numbers(), ends.values.long()
                reached = marks[hop - 1][row[chosen][owner], entity] <= number
                share = beams[hop - 1].shares[row[chosen][owner], entity].double()
                previous[chosen] = _likeliest(owner, entity, share, reached, len(chosen))
        ways.append(previous)
        at = previous
    ways.append(queries.source[row].long())
    return torch.stack(ways[::-1], 1)


def _likeliest(
    owner: Int64[Tensor, " m"],
    entity: Int64[Tensor, " m"],
    share: Float[Tensor, " m"],
    allowed: Bool[Tensor, " m"],
    owners: int,
) -> Int64[Tensor, " owners"]:
    """Of the entities of each owner that are allowed the one with the largest share, the first."""
    owner, entity = owner[allowed], entity[allowed]
    share = share[allowed].clamp(min=-1e9)  # one that is no candidate is better than none
    largest = torch.full((owners,), -torch.inf, dtype=torch.float64)
    largest = largest.scatter_reduce(0, owner, share, "amax")
    first = (share == largest[owner]).nonzero().flatten()
    found = torch.full((owners,), len(entity))
    found = found.scatter_reduce(0, owner[first], first, "amin")
    return entity[found]
