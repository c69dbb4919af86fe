"""Where one step leads: a graph as (entity, relation) -> entities, with inverse relations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int, Int32, Int64
from torch import Tensor

from .queries import inverse
from .ragged import Ragged, ragged_of


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
    ends: Ragged  # the entities that each step leads to, ascending

    def find(
        self, entity: Int[Tensor, " some"], relation: Int[Tensor, " some"]
    ) -> Int64[Tensor, " some"]:
        """The number of each step, -1 where it leads nowhere."""
        wanted = entity.long() * self.relations + relation
        place = torch.searchsorted(self.steps, wanted).clamp(max=len(self.steps) - 1)
        return torch.where(self.steps[place] == wanted, place, -1)

    def ranges(self) -> Ragged:
        """For every relation the entities it can lead to, wherever it starts."""
        relation = (self.steps % self.relations).repeat_interleave(self.ends.sizes)
        pairs = (relation * self.entities + self.ends.values).unique()
        sizes = torch.bincount(pairs // self.entities, minlength=self.relations)
        return ragged_of(sizes, pairs % self.entities)

    def to(self, device: Any) -> Adjacency:
        return Adjacency(
            self.entities,
            self.relations,
            self.steps.to(device),
            self.first.to(device),
            self.ends.to(device),
        )


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
    return Adjacency(entities, 2 * relations, steps, first, ragged_of(sizes, edges % entities))
