"""Marks of entities: the first split whose triples lead there, by enumeration of all paths."""

from __future__ import annotations

import hypothesis
import torch
from hypothesis import strategies as st

from dcgraph.experiments.tasks.paths.answers.known import NEW, known_triples
from small_graphs import (
    Plain,
    Rows,
    graph_of,
    graphs,
    mark_by_hand,
    queries_of,
    queries_on,
    random_graph,
)


@st.composite
def asked(draw: st.DrawFn) -> tuple[Plain, Rows]:
    plain = draw(graphs())
    return plain, draw(queries_on(plain, draw(st.integers(1, 4))))


@hypothesis.given(asked())
@hypothesis.settings(max_examples=60, deadline=None)
def test_marks_are_those_of_all_paths(drawn: tuple[Plain, Rows]) -> None:
    plain, rows = drawn
    graph = graph_of(*plain)
    known = known_triples(graph)
    marks = known.reached(queries_of(rows))
    for hops, found in enumerate(marks, 1):
        for query, (source, path, _) in enumerate(rows):
            for entity, mark in enumerate(found[query].tolist()):
                assert known.name(mark) == mark_by_hand(graph, source, path[:hops], entity)


def test_marks_of_triples() -> None:
    graph = random_graph(6, 2, 40, seed=1)
    known = known_triples(graph)
    every = torch.cartesian_prod(torch.arange(6), torch.arange(4), torch.arange(6))
    found = known.of_triples(*every.unbind(1))
    seen = set()
    for (head, relation, tail), mark in zip(every.tolist(), found.tolist(), strict=True):
        assert known.name(mark) == mark_by_hand(graph, head, [relation], tail)
        seen.add(known.name(mark))
    assert seen == {"training", "validation", "test", NEW}


def test_a_graph_without_validation_has_no_such_mark() -> None:
    graph = graph_of({"train": [(0, 0, 1)], "test": [(1, 0, 2)]})
    known = known_triples(graph)
    assert known.marks == ("training", "test")
    found = known.reached(queries_of([(0, [0, 0], 0)]))
    assert [known.name(mark) for mark in found[0][0].tolist()] == [NEW, "training", NEW]
    assert [known.name(mark) for mark in found[1][0].tolist()] == [NEW, NEW, "test"]
    only = known_triples(graph, ["train"])
    assert only.name(int(only.reached(queries_of([(0, [0, 0], 0)]))[1][0, 2])) == NEW
