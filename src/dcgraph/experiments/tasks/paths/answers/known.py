"""What the graph knows: the first split whose triples lead from a source along a path to an entity.

Splits are taken one after the other, training first, so that there are three graphs, each a part of
the next: of the training triples; with those of validation; with those of the test. An entity is
*in training* if a path of training triples leads there, *in validation* if that takes at least one
triple of validation, *in test* if it takes one of the test, and *new* if no known triples do. A
triple is a path of length 1. Its inverse is in the same split.

As numbers, for tensors, marks are the places of the splits: 0, 1, 2, and one more for new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int, Int8, Int64
from torch import Tensor

from ..data.graph import Adjacency, KnowledgeGraph, Queries
from ..data.walks import reachable

NEW = "new"

_NAMES = {"train": "training", "validation": "validation", "test": "test"}
MARKS = tuple(_NAMES.values())
"""Of what is known, in their order."""


@dataclass(frozen=True, eq=False)
class KnownTriples:
    """The graphs of a growing number of splits; each has all triples of those before it."""

    marks: tuple[str, ...]
    """A name for each of the graphs; :data:`NEW` comes after them."""
    graphs: tuple[Adjacency, ...]

    @cached_property
    def everything(self) -> Adjacency:
        return self.graphs[-1]

    def name(self, mark: int) -> str:
        return (*self.marks, NEW)[mark]

    def reached(self, queries: Queries) -> list[Int8[Tensor, "queries entities"]]:
        """For each beginning of the paths, from one relation to all, the mark of every entity."""
        beginnings = [
            Queries(queries.source, queries.path[:, : hops + 1], queries.target)
            for hops in range(queries.hops)
        ]
        size = len(queries), self.everything.entities
        found = [torch.full(size, len(self.marks), dtype=torch.int8) for _ in beginnings]
        for mark in reversed(range(len(self.graphs))):  # the first split has the last word
            sets = reachable(self.graphs[mark], beginnings)
            for marks, of in zip(found, sets.of, strict=True):
                marks[sets.sets.mask(of.long(), size[1])] = mark
        return found

    def of_triples(
        self,
        head: Int64[Tensor, " n"],
        relation: Int64[Tensor, " n"],
        tail: Int64[Tensor, " n"],
    ) -> Int64[Tensor, " n"]:
        """The mark of each triple; relations may be inverse."""
        found = torch.full_like(head, len(self.marks))
        for mark in reversed(range(len(self.graphs))):
            found[contains(self.graphs[mark], head, relation, tail)] = mark
        return found


def known_triples(graph: KnowledgeGraph, splits: Sequence[str] | None = None) -> KnownTriples:
    """Of these splits, or of all."""
    some = tuple(graph.triples if splits is None else splits)
    growing = [some[: count + 1] for count in range(len(some))]
    return KnownTriples(
        tuple(_NAMES.get(split, split) for split in some),
        tuple(graph.adjacency(*names) for names in growing),
    )


def contains(
    graph: Adjacency, head: Int[Tensor, " n"], relation: Int[Tensor, " n"], tail: Int[Tensor, " n"]
) -> Bool[Tensor, " n"]:
    """Whether the graph has each of the triples."""
    step = graph.find(head, relation)
    there = step >= 0
    found = torch.zeros_like(there)
    found[there] = graph.ends.contain(step[there], tail[there])
    return found
