"""Knowledge graphs and path queries over them, and the adjacency of a graph as CSR rows.

Relations are numbered from 0 to R - 1, and R + r is the inverse of relation r: it leads from the
tails of r to its heads.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Int, Int32, Int64
from torch import Tensor

from ....._arguments import closest, shown
from ....engine.errors import DataError
from ....engine.task import Batch, fingerprint_of

INVERSE = "**"
"""What the name of an inverse relation begins with."""

_LISTED = 15  # names, at most, in a complaint


@dataclass(frozen=True, eq=False)
class CSR:
    """Rows of different lengths (compressed sparse rows).

    Row k is ``values[offsets[k] : offsets[k + 1]]``.

    >>> rows = csr_of(torch.tensor([2, 0, 1]), torch.tensor([7, 8, 9]))
    >>> rows.lists()
    [[7, 8], [], [9]]
    """

    offsets: Int64[Tensor, " ends"]  # one more than there are rows
    values: Int32[Tensor, " values"]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Int64[Tensor, " rows"]:
        return self.offsets.diff()

    def take(self, rows: Int[Tensor, " some"]) -> CSR:
        """Some of the rows, in a new order; a row may come several times.

        >>> rows = csr_of(torch.tensor([2, 1]), torch.tensor([7, 8, 9]))
        >>> rows.take(torch.tensor([1, 0])).lists()
        [[9], [7, 8]]
        """
        return csr_of(self.sizes_of(rows), self.values[self.positions(rows)])

    def sizes_of(self, rows: Int[Tensor, " some"]) -> Int64[Tensor, " some"]:
        """How many values some of the rows have."""
        return self.offsets[rows + 1] - self.offsets[rows]

    def positions(self, rows: Int[Tensor, " some"]) -> Int64[Tensor, " found"]:
        """Where the values of some rows are, one row after the other."""
        sizes = self.sizes_of(rows)
        ends = sizes.cumsum(0)
        shift = (self.offsets[rows] - (ends - sizes)).repeat_interleave(sizes)
        return shift + torch.arange(len(shift), device=shift.device)

    def mask(self, rows: Int[Tensor, " some"], width: int) -> Bool[Tensor, "some {width}"]:
        """Which of the numbers below ``width`` are in each row; equal rows are made once.

        >>> CSR(torch.tensor([0, 2]), torch.tensor([0, 2]).int()).mask(torch.tensor([0]), 3)
        tensor([[ True, False,  True]])
        """
        distinct, which = rows.unique(return_inverse=True)
        table = torch.zeros(len(distinct), width, dtype=torch.bool, device=rows.device)
        found = self.take(distinct)
        table[found.row_numbers(), found.values.long()] = True
        return table[which]

    def contain(
        self, rows: Int[Tensor, " some"], values: Int[Tensor, " some"]
    ) -> Bool[Tensor, " some"]:
        """Whether each of some rows contains the value given for it.

        >>> rows = csr_of(torch.tensor([2, 1]), torch.tensor([7, 8, 9]))
        >>> rows.contain(torch.tensor([0, 1]), torch.tensor([8, 8]))
        tensor([ True, False])
        """
        found = self.take(rows)
        number = found.row_numbers()
        hits = torch.zeros(len(found), dtype=torch.int64, device=number.device)
        return hits.index_add_(0, number, (found.values == values[number]).long()) > 0

    def row_numbers(self) -> Int64[Tensor, " values"]:
        """The row of each value."""
        numbers = torch.arange(len(self), device=self.offsets.device)
        return numbers.repeat_interleave(self.sizes, output_size=len(self.values))

    def to(self, device: Any) -> CSR:
        return CSR(self.offsets.to(device), self.values.to(device))

    def lists(self) -> list[list[int]]:
        values: list[int] = self.values.tolist()
        ends = self.offsets.tolist()
        return [values[first:last] for first, last in pairwise(ends)]


def csr_of(sizes: Int[Tensor, " rows"], values: Int[Tensor, " values"]) -> CSR:
    """Rows of these sizes, filled with the values one after the other."""
    start = torch.zeros(1, dtype=torch.int64, device=sizes.device)
    return CSR(torch.cat([start, sizes.cumsum(0)]), values.int())


def stacked(parts: Sequence[CSR]) -> CSR:
    """The rows of all parts, one part below the other."""
    sizes = torch.cat([part.sizes for part in parts])
    return csr_of(sizes, torch.cat([part.values for part in parts]))


def portions(sizes: Int64[Tensor, " rows"], limit: int) -> Iterator[slice]:
    """Slices of rows whose sizes add up to ``limit`` at most, or that have a single row.

    >>> [(part.start, part.stop) for part in portions(torch.tensor([3, 1, 1, 9, 2]), limit=4)]
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    ends = sizes.cumsum(0).cpu()
    first, before = 0, 0
    while first < len(ends):
        stop = int(torch.searchsorted(ends, before + limit, right=True))
        stop = max(stop, first + 1)
        yield slice(first, stop)
        first, before = stop, int(ends[stop - 1])


@dataclass(frozen=True, eq=False)
class Queries:
    """Queries of one length: where they start, the relations to follow, one right answer each."""

    source: Int32[Tensor, " queries"]
    path: Int32[Tensor, "queries hops"]
    target: Int32[Tensor, " queries"]

    def __len__(self) -> int:
        return len(self.source)

    @property
    def hops(self) -> int:
        return self.path.shape[1]

    def __getitem__(self, rows: slice | Tensor) -> Queries:
        return Queries(self.source[rows], self.path[rows], self.target[rows])

    def table(self) -> Batch:
        """The tensors by name, for the training loop."""
        return {"source": self.source, "path": self.path, "target": self.target}

    def packed(self) -> Batch:
        """All in one tensor, a row for each query, with the integers that torch has for an index.

        A training step picks rows at random, which takes a kernel for each tensor.
        """
        columns = self.source.unsqueeze(1), self.path, self.target.unsqueeze(1)
        return {"queries": torch.cat(columns, 1).long()}

    def to(self, device: Any) -> Queries:
        return Queries(*(tensor.to(device) for tensor in self.table().values()))


def unpacked(rows: Batch) -> Batch:
    """From rows of :meth:`Queries.packed` to those of :meth:`Queries.table`."""
    columns = rows["queries"]
    return {"source": columns[:, 0], "path": columns[:, 1:-1], "target": columns[:, -1]}


def joined(parts: Sequence[Queries]) -> Queries:
    """Groups of one length as one."""
    columns = zip(*(part.table().values() for part in parts), strict=True)
    return Queries(*map(torch.cat, columns))


def inverse(relation: Int[Tensor, "..."], relations: int) -> Int[Tensor, "..."]:
    """The inverse relation; ``relations`` are R, those of the graph without inverses.

    >>> inverse(torch.tensor([0, 1, 2, 3]), relations=2)
    tensor([2, 3, 0, 1])
    """
    return torch.where(relation < relations, relation + relations, relation - relations)


def inverse_paths(queries: Queries, relations: int) -> Queries:
    """The same paths from their end to their start, by inverse relations."""
    return Queries(queries.target, inverse(queries.path.flip(1), relations), queries.source)


def single_hops(triples: Int32[Tensor, "n 3"]) -> Queries:
    """Triples of head, relation and tail as queries of length 1."""
    head, relation, tail = triples.unbind(1)
    return Queries(head.contiguous(), relation.unsqueeze(1), tail.contiguous())


@dataclass(frozen=True, eq=False)
class Adjacency:
    """All steps that can be taken: pairs of an entity and a relation that leads on from it.

    They are sorted by entity, then by relation, so that the relations at an entity are neighbours.
    Memory grows with the number of triples only, not with entities times relations.
    """

    entities: int
    relations: int  # inverses among them
    steps: Int64[Tensor, " steps"]  # entity * relations + relation, ascending
    first: Int64[Tensor, " ends"]  # steps of entity e are first[e] to first[e + 1] - 1
    ends: CSR  # the entities that each step leads to, ascending

    def find(
        self, entity: Int[Tensor, " some"], relation: Int[Tensor, " some"]
    ) -> Int64[Tensor, " some"]:
        """The number of each step, -1 where it leads nowhere."""
        wanted = entity.long() * self.relations + relation
        place = torch.searchsorted(self.steps, wanted).clamp(max=len(self.steps) - 1)
        return torch.where(self.steps[place] == wanted, place, -1)

    def ranges(self) -> CSR:
        """For every relation the entities it can lead to, wherever it starts."""
        relation = (self.steps % self.relations).repeat_interleave(self.ends.sizes)
        pairs = (relation * self.entities + self.ends.values).unique()
        sizes = torch.bincount(pairs // self.entities, minlength=self.relations)
        return csr_of(sizes, pairs % self.entities)

    def to(self, device: Any) -> Adjacency:
        steps, first = self.steps.to(device), self.first.to(device)
        return Adjacency(self.entities, self.relations, steps, first, self.ends.to(device))


def adjacency_of(triples: Int32[Tensor, "n 3"], entities: int, relations: int) -> Adjacency:
    """The graph of triples of head, relation and tail, each of them in both directions.

    >>> graph = adjacency_of(torch.tensor([[0, 0, 1], [0, 0, 2]]).int(), entities=3, relations=1)
    >>> graph.ends.take(graph.find(torch.tensor([0, 2]), torch.tensor([0, 1]))).lists()
    [[1, 2], [0]]
    """
    if not len(triples):
        raise ValueError("there are no triples; a graph needs at least one.")
    head, relation, tail = triples.long().unbind(1)
    start, end = torch.cat([head, tail]), torch.cat([tail, head])
    label = torch.cat([relation, inverse(relation, relations)])
    edges = ((start * 2 * relations + label) * entities + end).unique()
    steps, sizes = (edges // entities).unique_consecutive(return_counts=True)
    borders = torch.arange(entities + 1, device=steps.device) * 2 * relations
    first = torch.searchsorted(steps, borders)
    return Adjacency(entities, 2 * relations, steps, first, csr_of(sizes, edges % entities))


@dataclass(frozen=True, eq=False)
class KnowledgeGraph:
    """Names of entities and relations, and the triples of each split, every one once.

    A triple has the numbers of its head, relation and tail. The splits are "train", "validation"
    (unless there is none) and "test".
    """

    entities: tuple[str, ...]
    relations: tuple[str, ...]  # without inverses
    triples: Mapping[str, Int32[Tensor, "_ 3"]]

    @cached_property
    def fingerprint(self) -> str:
        parts = (part for split in self.triples for part in (split, self.triples[split]))
        return fingerprint_of(self._all_names, *parts)

    @cached_property
    def fingerprint_of_names(self) -> str:
        """Without the triples: of what the rows of a model are vectors of."""
        return fingerprint_of(self._all_names)

    @property
    def _all_names(self) -> str:
        return "\n".join([*self.entities, "", *self.relations])

    @cached_property
    def relation_names(self) -> tuple[str, ...]:
        """With inverses: the name of relation R + r is that of r behind two asterisks."""
        return (*self.relations, *(INVERSE + name for name in self.relations))

    def adjacency(self, *splits: str) -> Adjacency:
        """The graph of the triples of these splits, or of all if none is named."""
        some = [self.triples[split] for split in splits or self.triples]
        return adjacency_of(torch.cat(some), len(self.entities), len(self.relations))


def query_of(graph: KnowledgeGraph, entity: str, path: str) -> Queries:
    """A query from words: a name, and names of relations between commas; **name is an inverse."""
    if entity not in graph.entities:
        raise DataError(f"unknown entity {shown(entity)}; {near(entity, graph.entities)}")
    names = [word.strip() for word in path.split(",")]
    for name in names:
        if name not in graph.relation_names:
            known = graph.relation_names if name.startswith(INVERSE) else graph.relations
            raise DataError(f"unknown relation {shown(name)}; {near(name, known)}")
    numbers = [graph.relation_names.index(name) for name in names]
    start = torch.tensor([graph.entities.index(entity)], dtype=torch.int32)
    return Queries(start, torch.tensor([numbers], dtype=torch.int32), start)


def near(name: str, known: Sequence[str]) -> str:
    """What was probably meant, for a complaint; a graph may have too many names to list them."""
    if len(known) <= _LISTED:
        return closest(name, known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"there are {len(known):,}, such as {', '.join(map(repr, known[:3]))}."
