"""A knowledge graph: names of entities and relations, and triples of head, relation and tail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int32
from torch import Tensor

from ...engine.task import fingerprint_of
from .adjacency import Adjacency, adjacency_of

INVERSE = "**"
"""What the name of an inverse relation begins with."""


@dataclass(frozen=True, eq=False)
class KnowledgeGraph:
    """Entities and relations by their numbers, and the triples of each split, every one once.

    The splits are "train", "validation" (unless there is none) and "test".
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
        chosen = [self.triples[split] for split in splits or self.triples]
        return adjacency_of(torch.cat(chosen), len(self.entities), len(self.relations))
