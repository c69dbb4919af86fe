"""What probabilities are fitted on: new answers, and which of them are right."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dcgraph.experiments.tasks.paths.answers.candidates import Candidates
from dcgraph.experiments.tasks.paths.answers.reliability import (
    TOP,
    calibrated,
    natural_queries,
    new_answers,
)
from dcgraph.experiments.tasks.paths.data.graph import KnowledgeGraph
from small_graphs import edges_of, graph_of, random_graph, reached_by, rows_of


def oracle(graph: KnowledgeGraph, right: float, split: str = "validation") -> object:
    """Steps that give a share to true triples of splits up to one, and the rest to all others."""
    edges, n = (
        edges_of(graph, *list(graph.triples)[: list(graph.triples).index(split) + 1]),
        len(graph.entities),
    )

    def steps(source: Tensor, path: Tensor) -> Tensor:
        found = torch.full((len(source), n), (1 - right) / n)
        for row, (s, r) in enumerate(zip(source.tolist(), path[:, 0].tolist(), strict=True)):
            ends = reached_by(edges, s, [r])
            for end in ends:
                found[row, end] += right / len(ends)
        return found.log()

    return steps


def test_single_queries_are_different_steps_of_the_graph() -> None:
    graph = random_graph(8, 3, 40, seed=0)
    edges = edges_of(graph)
    rows = rows_of(natural_queries(graph.adjacency(), 1, 10**6))
    assert {(source, path[0]) for source, path, _ in rows} == {(h, r) for h, r, _ in edges}
    assert len(rows) == len({(h, r) for h, r, _ in edges})
    some = rows_of(natural_queries(graph.adjacency(), 1, 20))
    assert len(some) == 20 and {(s, *p) for s, p, _ in some} <= {(s, *p) for s, p, _ in rows}
    for source, path, target in rows_of(natural_queries(graph.adjacency(), 3, 50)):
        assert target in reached_by(edges, source, path)


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("split", ["validation", "test"])
def test_right_is_what_the_split_brings(split: str, length: int) -> None:
    """No answer that was known before is among them."""
    graph = random_graph(12, 2, 120, seed=1)
    steps = oracle(graph, 0.9, split)
    found = new_answers(steps, graph, split, length, 12, "all")  # type: ignore[arg-type]
    splits = list(graph.triples)
    at = splits.index(split)
    before, now = edges_of(graph, *splits[:at]), edges_of(graph, *splits[: at + 1])
    queries = natural_queries(
        graph.adjacency(*splits[: at + 1]), length, 2000 if length == 1 else 1000
    )
    expected = total = 0
    for source, path, _ in rows_of(queries):
        known, right = reached_by(before, source, path), reached_by(now, source, path)
        total += min(TOP, 12 - len(known))
        expected += len(right - known)  # the oracle has them first
    assert len(found.right) == total and int(found.right.sum()) == expected
    assert found.features.shape == (total, 3)
    assert float(found.share[found.right].mean()) > float(found.share[~found.right].mean())


def test_the_test_split_is_not_seen() -> None:
    graph = random_graph(12, 2, 140, seed=2)
    other = replace(
        graph, triples=dict(graph.triples) | {"test": graph.triples["test"].flip(0)[:1]}
    )
    steps = oracle(graph, 0.9)
    first, second = (calibrated(steps, one, 4) for one in (graph, other))  # type: ignore[arg-type]
    assert first.of and first == second
    without = KnowledgeGraph(
        graph.entities, graph.relations, {s: graph.triples[s] for s in ("train", "test")}
    )
    assert not calibrated(steps, without, 4).of  # type: ignore[arg-type]


def test_a_model_that_is_right_is_believed_more_than_one_that_guesses() -> None:
    graph = random_graph(12, 2, 140, seed=3)
    good, bad = (calibrated(oracle(graph, right), graph, 12) for right in (0.99, 0.01))  # type: ignore[arg-type]
    shares = torch.tensor([[0.5, 0.4, 0.05, 0.05]]).log()
    unknown = torch.tensor([[False, True, True, True]])
    believed, guessed = (one.probabilities(1, shares, unknown)[0, 1] for one in (good, bad))
    assert float(believed) > 0.8 > 0.5 > float(guessed)


def test_fewer_queries_and_candidates_of_the_rule() -> None:
    graph = graph_of(
        {"train": [(k, 0, 10 + k % 3) for k in range(10)], "validation": [(0, 0, 11)],
         "test": [(1, 0, 12)]}
    )  # fmt: skip
    uniform = lambda source, path: torch.zeros(len(source), 13)  # noqa: E731
    narrow = new_answers(uniform, graph, "validation", 1, 2, "range")
    wide = new_answers(uniform, graph, "validation", 1, 2, "all")
    assert len(narrow.right) < len(wide.right)
    assert int(Candidates(graph.adjacency("train"), "range").of(0).sum()) == 3
