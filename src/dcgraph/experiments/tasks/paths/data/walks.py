"""Walks in a graph: random ones, which make path queries, and all that a path reaches.

**Sampling** follows the procedure of the paper (Guu et al., 2015, before it). A walk starts at an
entity drawn uniformly from those with a triple. Each step draws one of the relations at the entity
uniformly, inverse ones among them, and then one of the entities uniformly to which it leads.
Training walks are in the graph of the training triples, all others in the whole graph. There are as
many paths of each length as the split has triples: for FB15k-237 that is 272,115 for training,
17,535 for validation and 20,466 for test. All paths are different, in a split and from one to the
next; a path and its inverse are the same one, for they can be asked and trained both ways. The
triples of a split are its paths of length 1.

Random numbers come from a **hash RNG**: each is a function of its number, so it is the same
everywhere, in any order and in parallel. The hash is that of SplitMix64 (Steele, Lea and Flood,
2014): arithmetic of 64 bits and nothing else, so neither the machine nor the version of torch makes
a difference.

**Reachability**: the set of entities at the end of all walks along a path. Large graphs have hubs,
and behind a hub most queries reach the same sets: after a person's country and back again, everyone
of that country. So sets are numbered, a step is taken once for each different (set, relation), and
equal results become one set. That keeps both the work and the result small, where a set for each
query would not fit into memory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int, Int32, Int64
from torch import Tensor

from ....engine.errors import DataError
from .graph import (
    CSR,
    Adjacency,
    KnowledgeGraph,
    Queries,
    csr_of,
    inverse_paths,
    joined,
    portions,
    single_hops,
    stacked,
)

LENGTHS = {"train": range(2, 6), "validation": range(2, 6), "test": range(2, 11)}
"""The lengths of the walks in each split."""

_CHUNK = 1 << 14  # walks that go together: their numbers stay in the processor's cache
_PATIENCE = 20  # rounds of draws without a new path, after which there seem to be no more
_AT_ONCE = 1 << 22  # entities that are looked at together; bounds the memory

_log = logging.getLogger(__name__)


def sample(
    graph: KnowledgeGraph, seed: int, lengths: Mapping[str, range] = LENGTHS
) -> dict[str, list[Queries]]:
    """The path queries of all splits; the same seed gives the same ones everywhere."""
    if seed < 0:
        raise ValueError(f"seed={seed}, but a seed is at least 0.")
    with _one_thread():
        return _sampled(graph, seed, lengths)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Walks are many small operations, between which threads on a busy machine wait for long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _sampled(
    graph: KnowledgeGraph, seed: int, lengths: Mapping[str, range]
) -> dict[str, list[Queries]]:
    whole = graph.adjacency()
    splits: dict[str, list[Queries]] = {}
    known: dict[int, Tensor] = {}  # hashes of the paths of each length so far
    for split, triples in graph.triples.items():
        walked = graph.adjacency("train") if split == "train" else whole
        count = len(triples) or max(1, len(graph.triples["train"]) // 10)
        groups = [single_hops(triples)]
        for hops in lengths[split]:
            stream = hash_rows(*map(torch.tensor, (seed, list(LENGTHS).index(split), hops)))
            before = known.get(hops, torch.empty(0, dtype=torch.int64))
            drawn = distinct_walks(walked, hops, count, stream, before)
            known[hops] = torch.cat([before, undirected_hashes(drawn, len(graph.relations))])
            groups.append(drawn)
        splits[split] = [group for group in groups if len(group)]
        few = [str(group.hops) for group in groups[1:] if len(group) < count]
        if few:
            _log.info("Fewer paths for %s than triples, of length %s.", split, ", ".join(few))
    if "validation" in splits and not splits["validation"]:
        del splits["validation"]
    if not splits.get("test", ["as asked"]):
        raise DataError("the graph has no path for a test that is not in training; add triples.")
    return splits


def distinct_walks(
    graph: Adjacency,
    hops: int,
    count: int,
    stream: Int64[Tensor, ""],
    known: Int64[Tensor, " known"],
) -> Queries:
    """The first ``count`` different walks of a stream whose undirected hashes are not ``known``.

    There are fewer, if the graph seems to have no more.
    """
    found: list[Queries] = []
    seen, missing, start, rounds = known, count, 0, 0
    while (missing and rounds < _PATIENCE) or not found:
        some = walks(graph, hops, start, missing + missing // 8 + 64, stream)
        start += len(some)
        hashes = undirected_hashes(some, graph.relations // 2)
        rows = _first_ones(hashes, seen)[:missing]
        seen, new = torch.cat([seen, hashes[rows]]), some[rows]
        found.append(new)
        missing -= len(new)
        rounds = 0 if len(new) or not missing else rounds + 1
    return joined(found)


def walks(
    graph: Adjacency, hops: int, start: int, count: int, stream: Int64[Tensor, ""]
) -> Queries:
    """Walks number ``start`` and following of a stream; each depends only on its own number."""
    inhabited = (graph.first.diff() > 0).nonzero().flatten()
    numbers = torch.arange(start, start + count)
    return joined([_walk(graph, hops, some, stream, inhabited) for some in numbers.split(_CHUNK)])


def _walk(
    graph: Adjacency,
    hops: int,
    number: Int64[Tensor, " walks"],
    stream: Int64[Tensor, ""],
    inhabited: Int64[Tensor, " inhabited"],
) -> Queries:
    draw = 0

    def bits() -> Tensor:
        nonlocal draw
        draw += 1
        return hash_bits(stream + number * (2 * hops + 1) + draw)

    everyone = torch.full_like(number, len(inhabited))
    entity = source = inhabited[uniform_below(everyone, bits())]
    path = []
    for _ in range(hops):
        first = graph.first[entity]
        step = first + uniform_below(graph.first[entity + 1] - first, bits())
        path.append(graph.steps[step] % graph.relations)
        place = graph.ends.offsets[step] + uniform_below(graph.ends.sizes_of(step), bits())
        entity = graph.ends.values[place].long()
    return Queries(source.int(), torch.stack(path, 1).int(), entity.int())


def path_hashes(queries: Queries) -> Int64[Tensor, " queries"]:
    """64 bits by which a path is known; different ones have the same with negligible probability.

    If they did, one of them would be taken for known and left out: no harm is done.
    """
    columns = [queries.source, *queries.path.unbind(1), queries.target]
    parts = zip(*(column.split(_CHUNK) for column in columns), strict=True)
    return torch.cat([hash_rows(*part) for part in parts])


def undirected_hashes(queries: Queries, relations: int) -> Int64[Tensor, " queries"]:
    """The same for a path and its inverse; ``relations`` are those without inverses."""
    return torch.minimum(path_hashes(queries), path_hashes(inverse_paths(queries, relations)))


def _first_ones(
    hashes: Int64[Tensor, " n"], known: Int64[Tensor, " known"]
) -> Int64[Tensor, " first"]:
    """Where each hash that is not known comes first, in the order given."""
    ordered, place = hashes.sort(stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    first &= ~torch.isin(ordered, known)
    return place[first].sort().values


def _signed(bits: int) -> int:
    """The 64 bits as torch keeps them."""
    return bits - (1 << 64) if bits >> 63 else bits


_STEP = _signed(0x9E3779B97F4A7C15)
_FACTORS = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)


def hash_bits(numbers: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
    """64 bits for each number, as if drawn independently for each different number.

    >>> hash_bits(torch.tensor([0])).item() % 2**64 == 0xE220A8397B1DCDAF
    True
    """
    bits = numbers * _STEP
    bits += _STEP  # all of this wraps around, as it should
    for places, factor in zip((30, 27), _FACTORS, strict=True):
        bits ^= _shifted(bits, places)
        bits *= factor
    bits ^= _shifted(bits, 31)
    return bits


def hash_rows(*columns: Int[Tensor, "..."]) -> Int64[Tensor, "..."]:
    """64 bits for each row of several numbers, as if drawn independently for each different row."""
    bits = torch.zeros_like(columns[0], dtype=torch.int64)
    for column in columns:
        bits = hash_bits(bits ^ column)
    return bits


def _shifted(bits: Tensor, places: int) -> Tensor:
    """To the right, with zeros from the left; torch by itself would repeat the sign."""
    moved = bits >> places
    moved &= (1 << (64 - places)) - 1
    return moved


def uniform_below(limits: Int64[Tensor, " n"], bits: Int64[Tensor, " n"]) -> Int64[Tensor, " n"]:
    """A number from 0 to each limit less 1, uniform up to one part in 2^32 / limit.

    >>> uniform_below(torch.tensor([1, 10]), hash_bits(torch.tensor([5, 5]))).tolist()
    [0, 3]
    """
    return (_shifted(bits, 32) * limits) >> 32


@dataclass(frozen=True, eq=False)
class Reached:
    """Different sets of entities, and which of them each query reaches."""

    sets: CSR
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
    everyone = torch.arange(graph.entities, device=device)
    sets = csr_of(torch.ones_like(everyone), everyone)
    now = [group.source.long() for group in groups]
    finished: dict[int, tuple[CSR, Tensor]] = {}
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


def _together(kept: Sequence[tuple[CSR, Tensor]], entities: int) -> Reached:
    """One numbering for the sets of all groups."""
    sets, names = _merged(stacked([own for own, _ in kept]), entities)
    parts = names.split([len(own) for own, _ in kept])
    of = [part[places].int() for part, (_, places) in zip(parts, kept, strict=True)]
    return Reached(sets, of)


def _stepped(graph: Adjacency, sets: CSR, steps: Int64[Tensor, " steps"]) -> CSR:
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
) -> CSR:
    """The entities found for each row, every one once and ascending."""
    place = row * entities + entity
    if rows * entities < 32 * len(place):  # flags in a table are cheaper than sorting
        table = torch.zeros(rows * entities, dtype=torch.bool, device=row.device)
        table[place] = True
        place = table.nonzero().flatten()
    else:
        place = place.unique()
    return csr_of(torch.bincount(place // entities, minlength=rows), place % entities)


def _merged(sets: CSR, entities: int) -> tuple[CSR, Int64[Tensor, " sets"]]:
    """Different sets, and the number of each given one among them.

    Sets are distinguished by a sum of 64 random bits for each member: that two of a million
    different ones have the same sum has a probability below 1e-7.
    """
    row = sets.row_numbers()
    bits = hash_bits(torch.arange(entities, device=row.device))
    total = torch.zeros(len(sets), dtype=torch.int64, device=row.device)
    total.index_add_(0, row, bits[sets.values])
    sums, names = total.unique(return_inverse=True)
    example = torch.zeros_like(sums)
    example[names] = torch.arange(len(sets), device=row.device)  # any of the equal ones
    return sets.take(example), names
