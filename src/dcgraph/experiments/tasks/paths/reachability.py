"""Everything that queries reach: the set of entities at the end of all walks along a path.

Large graphs have hubs, and behind a hub most queries reach the same sets: after a person's country
and back again, everyone of that country. So sets are numbered, a step is taken once for each
different (set, relation), and equal results become one set. That keeps both the work and the
result small, where a set for each query would not fit into memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int32, Int64
from torch import Tensor

from .adjacency import Adjacency
from .draws import mixed
from .queries import Queries
from .ragged import Ragged, portions, ragged_of, stacked

_AT_ONCE = 1 << 22  # entities that are looked at together; bounds the memory


@dataclass(frozen=True, eq=False)
class Reached:
    """Different sets of entities, and which of them each query reaches."""

    sets: Ragged
    of: list[Int32[Tensor, " _"]]  # for each group of queries

    def to(self, device: Any) -> Reached:
        return Reached(self.sets.to(device), [numbers.to(device) for numbers in self.of])


def reachable(graph: Adjacency, groups: Sequence[Queries]) -> Reached:
    """The sets that groups of queries reach, each group of one length.

    Targets play no part: a query that leads nowhere has the empty set.
    """
    if not groups:
        raise ValueError("there are no queries; pass at least one group.")
    device = graph.steps.device
    alone = torch.arange(graph.entities, device=device)
    sets = ragged_of(torch.ones_like(alone), alone)
    now = [group.source.long() for group in groups]
    finished: dict[int, tuple[Ragged, Tensor]] = {}
    for hop in range(max(group.hops for group in groups)):
        going = [number for number, group in enumerate(groups) if group.hops > hop]
        state = torch.cat([now[number] for number in going])
        relation = torch.cat([groups[number].path[:, hop] for number in going])
        steps, which = (state * graph.relations + relation).unique(return_inverse=True)
        sets, names = _merged(_stepped(graph, sets, steps), graph.entities)
        reached = names[which].split([len(groups[number]) for number in going])
        for number, numbers in zip(going, reached, strict=True):
            now[number] = numbers
            if groups[number].hops == hop + 1:
                used, places = numbers.unique(return_inverse=True)
                finished[number] = (sets.take(used), places)
    return _together([finished[number] for number in range(len(groups))], graph.entities)


def _together(kept: Sequence[tuple[Ragged, Tensor]], entities: int) -> Reached:
    """One numbering for the sets of all groups."""
    sets, names = _merged(stacked([own for own, _ in kept]), entities)
    parts = names.split([len(own) for own, _ in kept])
    of = [part[places].int() for part, (_, places) in zip(parts, kept, strict=True)]
    return Reached(sets, of)


def _stepped(graph: Adjacency, sets: Ragged, steps: Int64[Tensor, " steps"]) -> Ragged:
    """What each set reaches by a relation; a step is set * relations + relation."""
    order = sets.sizes_of(steps // graph.relations).argsort(stable=True)  # large ones together
    chosen, relation = steps[order] // graph.relations, steps[order] % graph.relations
    parts = []
    for some in portions(sets.sizes_of(chosen), _AT_ONCE):
        members = sets.take(chosen[some])
        row = members.row_numbers()
        found = graph.find(members.values, relation[some][row])
        row, found = row[found >= 0], found[found >= 0]
        rows = len(members)
        work = graph.ends.sizes_of(found)
        per_row = torch.zeros(rows, dtype=torch.int64, device=row.device).index_add_(0, row, work)
        last = torch.bincount(row, minlength=rows).cumsum(0).tolist()
        for few in portions(per_row, _AT_ONCE):
            inside = slice(last[few.start - 1] if few.start else 0, last[few.stop - 1])
            ends = graph.ends.values[graph.ends.positions(found[inside])]
            owner = (row[inside] - few.start).repeat_interleave(work[inside])
            parts.append(_distinct(owner, ends, few.stop - few.start, graph.entities))
    result = stacked(parts)
    return result.take(order.argsort())


def _distinct(
    row: Int64[Tensor, " found"], entity: Int32[Tensor, " found"], rows: int, entities: int
) -> Ragged:
    """The entities found for each row, every one once and ascending."""
    place = row * entities + entity
    if rows * entities < 32 * len(place):  # marks in a table are cheaper than sorting
        table = torch.zeros(rows * entities, dtype=torch.bool, device=row.device)
        table[place] = True
        place = table.nonzero().flatten()
    else:
        place = place.unique()
    return ragged_of(torch.bincount(place // entities, minlength=rows), place % entities)


def _merged(sets: Ragged, entities: int) -> tuple[Ragged, Int64[Tensor, " sets"]]:
    """Different sets, and the number of each given one among them.

    Sets are told apart by a sum of 64 random bits for each member: that two of a million different
    ones have the same sum has a probability below 1e-7.
    """
    row = sets.row_numbers()
    bits = mixed(torch.arange(entities, device=row.device))
    total = torch.zeros(len(sets), dtype=torch.int64, device=row.device)
    total.index_add_(0, row, bits[sets.values])
    sums, names = total.unique(return_inverse=True)
    example = torch.zeros_like(sums)
    example[names] = torch.arange(len(sets), device=row.device)  # any of the equal ones
    return sets.take(example), names
