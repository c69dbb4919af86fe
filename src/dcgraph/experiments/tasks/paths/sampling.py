"""Path queries by random walks, after the procedure of the paper (Guu et al., 2015, before it).

A walk starts at an entity drawn uniformly from those with a triple. Each step draws one of the
relations at the entity uniformly, inverse ones among them, and then one of the entities uniformly
to which it leads. Training walks are in the graph of the training triples, all others in the
whole graph. There are as many paths of each length as the split has triples: for FB15k-237
that is 272,115 for training, 17,535 for validation and 20,466 for test. All paths are different, in
a split and from one to the next; a path and its reverse are the same one, for they can be asked and
trained both ways. The triples of a split are its paths of length 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from jaxtyping import Int64
from torch import Tensor

from ...engine.datasets import DataError
from .adjacency import Adjacency
from .draws import below, combined, mixed
from .graph import KnowledgeGraph
from .queries import Queries, joined, single_hops, turned

LENGTHS = {"train": range(2, 6), "validation": range(2, 6), "test": range(2, 11)}
"""The lengths of the walks in each split."""

_AT_ONCE = 1 << 14  # walks that go together: their numbers stay in the cache
_PATIENCE = 20  # rounds of draws without a new path, after which there seem to be no more


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
    known: dict[int, Tensor] = {}  # marks of the paths of each length so far
    for split in graph.triples:
        walked = graph.adjacency("train") if split == "train" else whole
        groups = [single_hops(graph.triples[split])]
        for hops in lengths[split]:
            stream = combined(*map(torch.tensor, (seed, list(LENGTHS).index(split), hops)))
            before = known.get(hops, torch.empty(0, dtype=torch.int64))
            drawn = distinct_walks(walked, hops, len(graph.triples[split]), stream, before)
            known[hops] = torch.cat([before, marks_both_ways(drawn, len(graph.relations))])
            groups.append(drawn)
        splits[split] = groups
    return splits


def distinct_walks(
    graph: Adjacency,
    hops: int,
    count: int,
    stream: Int64[Tensor, ""],
    known: Int64[Tensor, " known"],
) -> Queries:
    """The first ``count`` different walks of a stream whose marks, both ways, are not ``known``."""
    found: list[Queries] = []
    seen, missing, start, rounds = known, count, 0, 0
    while missing or not found:
        some = walks(graph, hops, start, missing + missing // 8 + 64, stream)
        start += len(some)
        mark = marks_both_ways(some, graph.relations // 2)
        rows = _first_ones(mark, seen)[:missing]
        seen, new = torch.cat([seen, mark[rows]]), some[rows]
        found.append(new)
        missing -= len(new)
        rounds = 0 if len(new) or not missing else rounds + 1
        if rounds == _PATIENCE:
            raise DataError(
                f"the graph seems to have {count - missing:,} new paths of length {hops}, but "
                f"{count:,} are needed; add triples, or files of path queries beside them."
            )
    return joined(found)


def walks(
    graph: Adjacency, hops: int, start: int, count: int, stream: Int64[Tensor, ""]
) -> Queries:
    """Walks number ``start`` and following of a stream; each depends on its own number alone."""
    inhabited = (graph.first.diff() > 0).nonzero().flatten()
    numbers = torch.arange(start, start + count)
    return joined([_walk(graph, hops, some, stream, inhabited) for some in numbers.split(_AT_ONCE)])


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
        return mixed(stream + number * (2 * hops + 1) + draw)

    everyone = torch.full_like(number, len(inhabited))
    entity = source = inhabited[below(everyone, bits())]
    path = []
    for _ in range(hops):
        first = graph.first[entity]
        step = first + below(graph.first[entity + 1] - first, bits())
        path.append(graph.steps[step] % graph.relations)
        place = graph.ends.offsets[step] + below(graph.ends.sizes_of(step), bits())
        entity = graph.ends.values[place].long()
    return Queries(source.int(), torch.stack(path, 1).int(), entity.int())


def marks(queries: Queries) -> Int64[Tensor, " queries"]:
    """64 bits by which a path is known; different ones have the same with negligible probability.

    If they did, one of them would be taken for known and left out: no harm is done.
    """
    columns = [queries.source, *queries.path.unbind(1), queries.target]
    parts = zip(*(column.split(_AT_ONCE) for column in columns), strict=True)
    return torch.cat([combined(*part) for part in parts])


def marks_both_ways(queries: Queries, relations: int) -> Int64[Tensor, " queries"]:
    """The same for a path and its reverse; ``relations`` are those without inverses."""
    return torch.minimum(marks(queries), marks(turned(queries, relations)))


def _first_ones(
    mark: Int64[Tensor, " n"], known: Int64[Tensor, " known"]
) -> Int64[Tensor, " first"]:
    """Where each mark that is not known comes first, in the order given."""
    ordered, place = mark.sort(stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    first &= ~torch.isin(ordered, known)
    return place[first].sort().values
