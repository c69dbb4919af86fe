"""Whom an answer competes with: two protocols.

*range* (Guu et al., 2015): the competitors of an answer are the entities that the last relation of
the path can lead to at all, wherever it starts. Measured are the mean quantile (MQ) and the share
of answers among the first 10 (H@10).

*all*: the competitors are all entities, as for single triples (Bordes et al., 2013), and every path
is also asked backwards, from its end to its start by inverse relations. Measured are the mean
reciprocal rank (MRR) and the shares of answers among the first 1, 3 and 10.

In both an entity that the query reaches in the whole graph is right too, and so no competitor.
Queries without competitors are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from ...._arguments import check_choice
from ...engine.task import Batch
from .adjacency import Adjacency
from .queries import Queries, turned
from .ragged import Ragged, portions
from .ranking import Standing, Ties
from .reachability import Reached, reachable

Protocol = Literal["range", "all"]

METRICS: dict[str, tuple[str, ...]] = {
    "range": ("MQ", "H@10"),
    "all": ("MRR", "H@1", "H@3", "H@10"),
}
"""What is measured by each protocol."""

_AT_ONCE = 1 << 22  # members of sets that are looked at together


@dataclass(frozen=True, eq=False)
class Examination:
    """Queries as they are asked, and what is needed to find the competitors of their answers.

    A table for each length has, beside ``source``, ``path`` and ``target``, the number ``right`` of
    the set of right answers. What tables share is in ``shared``: these sets and, for the protocol
    *range*, the range of every relation.
    """

    protocol: Protocol
    entities: int
    tables: list[Batch]
    shared: Batch
    skipped: int  # queries without competitors

    def __len__(self) -> int:
        return sum(len(table["target"]) for table in self.tables)

    def first(self, queries: int) -> Examination:
        """A small one, with at most so many queries of each length: to try whether all works."""
        tables = [{name: tensor[:queries] for name, tensor in t.items()} for t in self.tables]
        return Examination(self.protocol, self.entities, tables, self.shared, self.skipped)

    def to(self, device: Any) -> Examination:
        tables = [{name: tensor.to(device) for name, tensor in t.items()} for t in self.tables]
        shared = {name: tensor.to(device) for name, tensor in self.shared.items()}
        return Examination(self.protocol, self.entities, tables, shared, self.skipped)


def examine(
    graph: Adjacency,
    splits: Mapping[str, Sequence[Queries]],
    protocol: Protocol,
    reach: Callable[[Adjacency, Sequence[Queries]], Reached] = reachable,
) -> dict[str, Examination]:
    """Prepare queries to be asked; ``graph`` is that of all true triples.

    All splits have the same ``shared``. ``reach`` finds what queries reach, or remembers it.
    """
    check_choice("protocol", protocol, METRICS)
    asked: dict[str, list[Queries]] = {}
    for split, groups in splits.items():
        backwards = [turned(group, graph.relations // 2) for group in groups]
        asked[split] = [*groups, *(backwards if protocol == "all" else [])]
    reached = reach(graph, [group for groups in asked.values() for group in groups])
    ranges = graph.ranges()
    shared = {"right_offsets": reached.sets.offsets, "right_members": reached.sets.values}
    if protocol == "range":
        shared |= {"range_offsets": ranges.offsets, "range_members": ranges.values}
    sets = iter(reached.of)
    examinations = {}
    for split, groups in asked.items():
        tables: list[Batch] = [group.table() | {"right": next(sets)} for group in groups]
        pools = ranges if protocol == "range" else graph.entities
        joined = _joined([_with_competitors(table, pools, reached.sets) for table in tables])
        skipped = sum(map(len, groups)) - sum(len(table["target"]) for table in joined)
        examinations[split] = Examination(protocol, graph.entities, joined, shared, skipped)
    return examinations


def _with_competitors(table: Batch, pools: Ragged | int, sets: Ragged) -> Batch:
    """The rows that have any; ``pools`` are the ranges of the relations, or how many all are.

    What a path reaches is in the range of its last relation, so sizes tell how many of the pool
    are left. A single one may be the target itself, if that is in the pool and yet not reached.
    """
    last, right, target = table["path"][:, -1].long(), table["right"].long(), table["target"]
    sizes = torch.full_like(last, pools) if isinstance(pools, int) else pools.sizes_of(last)
    left = sizes - sets.sizes_of(right)
    single = (left == 1).nonzero().flatten()
    for some in portions(sizes[single], _AT_ONCE):
        rows = single[some]
        competes = sets.contain(right[rows], target[rows])
        if not isinstance(pools, int):
            competes |= ~pools.contain(last[rows], target[rows])
        left[rows] = competes.long()
    kept = (left > 0).nonzero().flatten()
    return {name: tensor[kept] for name, tensor in table.items()}


def _joined(tables: Sequence[Batch]) -> list[Batch]:
    """Tables of the same length as one; empty ones are left out."""
    by_length: dict[int, list[Batch]] = {}
    for table in tables:
        if len(table["target"]):
            by_length.setdefault(table["path"].shape[1], []).append(table)
    return [
        {name: torch.cat([part[name] for part in by_length[hops]]) for name in by_length[hops][0]}
        for hops in sorted(by_length)
    ]


def competitors(shared: Batch, rows: Batch, entities: int) -> Bool[Tensor, "queries {entities}"]:
    """Who competes with the targets of some rows of an examination."""
    right = Ragged(shared["right_offsets"], shared["right_members"])
    mask = ~right.mask(rows["right"], entities)
    if "range_offsets" in shared:
        ranges = Ragged(shared["range_offsets"], shared["range_members"])
        mask &= ranges.mask(rows["path"][:, -1], entities)
    target = rows["target"].long().unsqueeze(1)
    return mask.scatter_(1, target, False)  # also if the graph does not know this answer


def measured(
    stands: Standing, protocol: Protocol, ties: Ties = "realistic"
) -> dict[str, Float64[Tensor, "*queries"]]:
    """What the protocol measures, for each query; averages are reported."""
    ranks = stands.ranks(ties)
    known = {
        "MQ": stands.quantiles(ties),
        "MRR": 1 / ranks,
        **{f"H@{k}": (ranks <= k).double() for k in (1, 3, 10)},
    }
    return {name: known[name] for name in METRICS[protocol]}
