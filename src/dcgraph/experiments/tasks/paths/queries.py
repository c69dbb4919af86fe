"""Path queries: from a source along relations to a target.

Relations are numbered from 0 to R - 1, and R + r is the inverse of relation r: it leads from the
tails of r to its heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int, Int32
from torch import Tensor

from ...engine.task import Batch


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
    """The relation that leads back; ``relations`` are R, those of the graph without inverses.

    >>> inverse(torch.tensor([0, 1, 2, 3]), relations=2)
    tensor([2, 3, 0, 1])
    """
    return torch.where(relation < relations, relation + relations, relation - relations)


def turned(queries: Queries, relations: int) -> Queries:
    """The same paths from their end to their start."""
    return Queries(queries.target, inverse(queries.path.flip(1), relations), queries.source)


def single_hops(triples: Int32[Tensor, "n 3"]) -> Queries:
    """Triples of head, relation and tail as queries of length 1."""
    head, relation, tail = triples.unbind(1)
    return Queries(head.contiguous(), relation.unsqueeze(1), tail.contiguous())
