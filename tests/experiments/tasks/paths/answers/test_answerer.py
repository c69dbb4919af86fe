"""Answers: their order, marks and evidence against brute force on small graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import pytest
import torch

from dcgraph.experiments.tasks.paths.answers import answerer as answering
from dcgraph.experiments.tasks.paths.answers.answerer import (
    GUESS,
    Answer,
    Answered,
    Answerer,
    Stop,
    among,
    search,
)
from dcgraph.experiments.tasks.paths.answers.calibration import Calibration
from dcgraph.experiments.tasks.paths.answers.candidates import Candidates
from dcgraph.experiments.tasks.paths.answers.known import NEW, known_triples
from dcgraph.experiments.tasks.paths.data.graph import KnowledgeGraph
from dcgraph.experiments.tasks.paths.decoding import beam_search, step_scores
from dcgraph.experiments.tasks.paths.evaluation import Score
from dcgraph.experiments.tasks.paths.model import ComplEx, Shape
from small_graphs import edges_of, graph_of, mark_by_hand, queries_of, random_graph, reached_by

NUMBERS = Calibration({1: (1.1, 0.4, 0.2), 2: (0.7, 0.9, -0.1)})
ORDER = ["training", "validation", "test", NEW]


def steps_for(graph: KnowledgeGraph, seed: int = 0) -> Score:
    torch.manual_seed(seed)
    return step_scores(ComplEx(Shape(len(graph.entities), 2 * len(graph.relations), 6)).eval())


def answerer_for(graph: KnowledgeGraph, width: int, seed: int = 0) -> Answerer:
    known = known_triples(graph)
    steps = steps_for(graph, seed)
    return Answerer(graph, known, steps, Candidates(known.everything), width, NUMBERS)


def answers_to(
    graph: KnowledgeGraph, source: int, path: list[int], width: int = 3, top: int = 100
) -> Answered:
    (found,) = answerer_for(graph, width).answer(queries_of([(source, path, 0)]), top)
    return found


QUERIES = [(0, [0]), (1, [3]), (2, [0, 1]), (3, [2, 3, 1]), (4, [1, 0, 2, 1])]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("source", "path"), QUERIES)
def test_marks_and_evidence_agree_with_all_paths(source: int, path: list[int], seed: int) -> None:
    graph = random_graph(7, 2, 30, seed)
    found = answers_to(graph, source, path)
    splits = tuple(graph.triples)
    edges = [edges_of(graph, *splits[: count + 1]) for count in range(len(splits))]
    assert sorted(one.entity for one in found.answers) == sorted(graph.entities), "all are ranked"
    for answer in found.answers:
        entity = graph.entities.index(answer.entity)
        assert answer.mark == mark_by_hand(graph, source, path, entity)
        stops = [source, *(graph.entities.index(step.target) for step in answer.evidence)]
        assert stops[-1] == entity and [s.source for s in answer.evidence] == [
            graph.entities[stop] for stop in stops[:-1]
        ]
        marks = []
        for step, head, relation, tail in zip(
            answer.evidence, stops, path, stops[1:], strict=False
        ):
            assert step.relation == graph.relation_names[relation]
            by_hand = mark_by_hand(graph, head, [relation], tail)
            assert step.mark == (GUESS if by_hand == NEW else by_hand)
            marks.append(ORDER.index(by_hand))
        assert ORDER[max(marks)] == answer.mark, "the latest split that the way needs"
        assert (GUESS in {step.mark for step in answer.evidence}) == (answer.mark == NEW)
    counts = [len(reached_by(some, source, path)) for some in edges]
    assert found.known == {
        "training": counts[0], "validation": counts[1] - counts[0], "test": counts[2] - counts[1]
    }  # fmt: skip


@pytest.mark.parametrize(("source", "path"), QUERIES)
def test_a_known_way_takes_the_likeliest_entities_from_the_end(
    source: int, path: list[int]
) -> None:
    """Of all ways in the graph of the mark: by brute force."""
    graph = random_graph(7, 2, 40, seed=5)
    answerer = answerer_for(graph, 7)
    queries = queries_of([(source, path, 0)])
    beams = search(answerer.steps, answerer.candidates, queries, 7)
    (found,) = answerer.answer(queries, 100)
    splits = tuple(graph.triples)
    for answer in found.answers:
        if answer.mark == NEW:
            continue
        edges = edges_of(graph, *splits[: ORDER.index(answer.mark) + 1])
        end = graph.entities.index(answer.entity)
        ways = [
            (source, *between, end)
            for between in product(range(7), repeat=len(path) - 1)
            if all(
                (a, r, b) in edges
                for a, r, b in zip((source, *between), path, (*between, end), strict=True)
            )
        ]
        # The share of the last entity on the way decides, then that of the one before it.
        best = max(
            ways,
            key=lambda way: [
                float(beams[hop].shares[0, way[hop + 1]]) for hop in reversed(range(len(path) - 1))
            ],
        )
        assert [graph.entities.index(step.target) for step in answer.evidence] == [*best[1:]]


@pytest.mark.parametrize(("source", "path"), QUERIES[2:])
def test_a_guessed_way_gave_most_of_the_share(source: int, path: list[int]) -> None:
    """With all entities kept, the last step of the way is the largest term of the sum."""
    graph = random_graph(7, 2, 30, seed=2)
    answerer = answerer_for(graph, 7)
    queries = queries_of([(source, path, 0)])
    beams = search(answerer.steps, answerer.candidates, queries, 7)
    steps = among(answerer.steps, answerer.candidates)
    everyone = torch.arange(7).int()
    (found,) = answerer.answer(queries, 100)
    last = steps(everyone, torch.full((7, 1), path[-1]).int())
    terms = beams[-2].shares[0].unsqueeze(1) + last
    for answer in found.answers:
        if answer.mark == NEW:
            before = graph.entities.index(answer.evidence[-1].source)
            end = graph.entities.index(answer.entity)
            assert before == int(terms[:, end].argmax())


@pytest.mark.parametrize("width", [1, 2, 7])
def test_shares_are_those_of_beam_search(width: int) -> None:
    graph = random_graph(7, 2, 30, seed=3)
    steps, free = steps_for(graph), Candidates(graph.adjacency(), "all")
    queries = queries_of([(0, [0, 3, 2], 0), (5, [1, 1, 0], 0)])
    found = search(steps, free, queries, width)
    for one, beam in zip(
        found, beam_search(steps, queries.source, queries.path, width), strict=True
    ):
        torch.testing.assert_close(one.shares, beam.log_weights.log_softmax(1))
        assert torch.equal(one.kept, beam.kept)


def test_only_candidates_are_answers_and_no_known_one_is_lost() -> None:
    graph = random_graph(9, 2, 24, seed=4)
    known = known_triples(graph)
    narrow = Candidates(known.everything, "range")
    answerer = Answerer(graph, known, steps_for(graph), narrow, 3)
    for source, path in QUERIES:
        (found,) = answerer.answer(queries_of([(source, path, 0)]), 100)
        answers = {graph.entities.index(one.entity) for one in found.answers}
        assert len(answers) == found.candidates
        assert answers == set(narrow.of(path[-1]).nonzero().flatten().tolist())
        assert reached_by(edges_of(graph), source, path) <= answers
        assert sum(one.share for one in found.answers) == pytest.approx(1, abs=1e-5)


def test_a_relation_that_nothing_has_leads_anywhere() -> None:
    graph = graph_of({"train": [(0, 0, 1), (1, 0, 2)], "test": [(2, 0, 0)]}, relations=2)
    known = known_triples(graph)
    narrow = Candidates(known.everything, "range")
    answerer = Answerer(graph, known, steps_for(graph), narrow, 2)
    (found,) = answerer.answer(queries_of([(0, [1], 0)]), 10)
    assert len(found.answers) == 3 and {one.mark for one in found.answers} == {NEW}


def test_new_answers_and_hops_have_calibrated_probabilities() -> None:
    graph = random_graph(7, 2, 30, seed=6)
    answerer = answerer_for(graph, 3)
    queries = queries_of([(0, [0, 1, 2], 0)])
    beams = search(answerer.steps, answerer.candidates, queries, 3)
    (found,) = answerer.answer(queries, 100)
    every: list[Sequence[Stop | Answer]] = [*found.hops, found.answers]
    for hops, stops in enumerate(every, 1):
        a, b, c = NUMBERS.of[min(hops, 2)]
        share = beams[hops - 1].shares[0].double().exp()
        path = [0, 1, 2][:hops]
        unknown = [mark_by_hand(graph, 0, path, entity) == NEW for entity in range(7)]
        whole = float(share[torch.tensor(unknown)].sum())
        for stop in stops:
            entity = graph.entities.index(stop.entity)
            assert stop.share == pytest.approx(float(share[entity]), rel=1e-5)
            if stop.mark == NEW:
                logit = a * math.log(float(share[entity]) / whole) + b * math.log(whole) + c
                assert stop.probability == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-4)
            else:
                assert stop.probability is None
    plain = Answerer(graph, answerer.known, answerer.steps, answerer.candidates, 3)
    (without,) = plain.answer(queries, 100)
    assert {one.probability for one in without.answers} == {None}


def test_only_new_answers_are_the_new_ones_among_all() -> None:
    graph = random_graph(7, 2, 30, seed=8)
    answerer = answerer_for(graph, 3)
    for source, path in QUERIES:
        queries = queries_of([(source, path, 0)])
        (every,), (some,) = (answerer.answer(queries, 100, new=new) for new in (False, True))
        assert some.answers == tuple(one for one in every.answers if one.mark == NEW)
        assert some.known == every.known and some.hops == every.hops
        (first,) = answerer.answer(queries, 2, new=True)
        assert first.answers == some.answers[:2]


def test_many_queries_are_answered_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(9, 2, 40, seed=7)
    answerer = answerer_for(graph, 3)
    rows = [(source, [a, b], 0) for source in range(9) for a in range(4) for b in range(4)]
    together = answerer.answer(queries_of(rows), 5, shown=2)
    singly = [answerer.answer(queries_of([row]), 5, shown=2)[0] for row in rows[::7]]
    for one, same in zip(together[::7], singly, strict=True):
        assert [x.entity for x in one.answers] == [x.entity for x in same.answers]
        assert [x.evidence for x in one.answers] == [x.evidence for x in same.answers]
        assert len(one.answers) == 5 and len(one.hops) == 1 and len(one.hops[0]) == 2
    monkeypatch.setattr(answering, "_AT_ONCE", 1)
    monkeypatch.setattr(answering, "_NEIGHBOURS", 1)
    small = answerer.answer(queries_of(rows[:20]), 5, shown=2)
    for one, same in zip(together, small, strict=False):
        assert [x.evidence for x in one.answers] == [x.evidence for x in same.answers]
