"""Knowledge graphs: CSR rows, steps and inverse paths, against sets and loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dcgraph.experiments.tasks.paths.data.graph import (
    adjacency_of,
    csr_of,
    inverse,
    inverse_paths,
    portions,
    single_hops,
    stacked,
)
from small_graphs import (
    Plain,
    edges_of,
    graph_of,
    graphs,
    queries_of,
    queries_on,
    reached_by,
    rows_of,
)

LISTS = st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=6)

# Rows of different lengths


@given(LISTS, st.data())
@settings(max_examples=50)
def test_csr_rows_are_lists(rows: list[list[int]], data: st.DataObject) -> None:
    sizes = torch.tensor([len(row) for row in rows])
    csr = csr_of(sizes, torch.tensor([x for row in rows for x in row], dtype=torch.int32))
    assert csr.lists() == rows and len(csr) == len(rows)
    assert csr.row_numbers().tolist() == [k for k, row in enumerate(rows) for _ in row]
    assert stacked([csr, csr]).lists() == rows + rows
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8))
    some = torch.tensor(chosen, dtype=torch.int64)
    assert csr.take(some).lists() == [rows[k] for k in chosen]
    assert csr.contain(some, some + 1).tolist() == [k + 1 in rows[k] for k in chosen]
    assert csr.mask(some, 10).tolist() == [[x in rows[k] for x in range(10)] for k in chosen]


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 15))
def test_portions_are_whole_and_within_the_limit(sizes: list[int], limit: int) -> None:
    parts = list(portions(torch.tensor(sizes, dtype=torch.int64), limit))
    assert [k for part in parts for k in range(part.start, part.stop)] == list(range(len(sizes)))
    for part in parts:
        assert sum(sizes[part]) <= limit or part.stop == part.start + 1


# Steps and paths


@given(graphs())
@settings(max_examples=25)
def test_steps_and_ranges(plain: Plain) -> None:

    whole = graph_of(*plain)
    for splits in ((), ("train",)):
        graph, edges = whole.adjacency(*splits), edges_of(whole, *splits)
        for entity in range(graph.entities):
            for relation in range(graph.relations):
                (step,) = graph.find(torch.tensor([entity]), torch.tensor([relation])).tolist()
                ends = sorted(reached_by(edges, entity, [relation]))
                assert (graph.ends.lists()[step] if step >= 0 else []) == ends
        ranges = [{t for _, label, t in edges if label == r} for r in range(graph.relations)]
        assert graph.ranges().lists() == [sorted(entities) for entities in ranges]


def test_a_graph_needs_triples() -> None:
    with pytest.raises(ValueError, match="there are no triples"):
        adjacency_of(torch.empty(0, 3, dtype=torch.int32), 2, 1)


@given(graphs(), st.data())
def test_inverse_paths_lead_from_target_to_source(plain: Plain, data: st.DataObject) -> None:

    rows, graph = data.draw(queries_on(plain, 3)), graph_of(*plain)
    queries, r, edges = queries_of(rows), len(graph.relations), edges_of(graph)
    back = inverse_paths(queries, r)
    for (s, path, t), (s2, path2, t2) in zip(rows_of(queries), rows_of(back), strict=True):
        assert (s2, t2) == (t, s)
        assert (t in reached_by(edges, s, path)) == (s in reached_by(edges, t, path2))
    for before, after in zip(rows_of(queries), rows_of(inverse_paths(back, r)), strict=True):
        assert before == after


def test_inverses_and_single_hops() -> None:
    relation = torch.arange(6)
    assert inverse(relation, 3).tolist() == [3, 4, 5, 0, 1, 2]
    queries = single_hops(torch.tensor([[0, 1, 2], [2, 0, 0]], dtype=torch.int32))
    assert rows_of(queries) == [(0, [1], 2), (2, [0], 0)]
    assert (len(queries), queries.hops, rows_of(queries[1:])) == (2, 1, [(2, [0], 0)])
