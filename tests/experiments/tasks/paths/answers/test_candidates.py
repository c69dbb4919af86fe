"""Candidates by their definition, and the rule by leaving triples out one by one."""

from __future__ import annotations

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from dcgraph.experiments.tasks.paths.answers import candidates as module
from dcgraph.experiments.tasks.paths.answers.candidates import (
    LOST,
    RULES,
    Candidates,
    Rule,
    upper_end,
)
from dcgraph.experiments.tasks.paths.data.graph import KnowledgeGraph
from small_graphs import Plain, Triple, edges_of, graph_of, graphs, random_graph


def set_by_hand(
    edges: set[Triple], entities: int, relations: int, rule: str, relation: int
) -> set[int]:
    """``relations`` are those without inverses."""
    if rule == "all":
        return set(range(entities))
    found = {tail for _, label, tail in edges if label == relation}
    if rule == "range":
        return found
    labels = [{label for head, label, _ in edges if head == entity} for entity in range(entities)]
    end = (relation + relations) % (2 * relations)
    together = {label for some in labels if end in some for label in some}
    return found | {
        entity for entity in range(entities) if labels[entity] & together or not labels[entity]
    }


def lost_by_hand(graph: KnowledgeGraph, rule: str, relation: int) -> int:
    """Each triple of a relation left out in turn: its end only, as a step back from there."""
    edges, r = edges_of(graph), len(graph.relations)
    end, lost = (relation + r) % (2 * r), 0
    for head, label, tail in edges:
        if label != relation:
            continue
        rest = {(a, b, c) for a, b, c in edges if (a, b, c) != (tail, end, head)}
        rest -= {(head, label, tail)}
        entity = len(graph.entities)
        if rule == "range":
            lost += tail not in {c for _, b, c in rest if b == relation}
            continue
        labels = [{b for a, b, _ in rest if a == e} for e in range(entity)]
        # What leads on from the head is as it was: only the end is asked about.
        labels[head] |= {label}
        if not labels[tail]:
            continue
        together = {b for some in labels if end in some for b in some}
        lost += not labels[tail] & together
    return lost


@hypothesis.given(graphs())
@hypothesis.settings(max_examples=60, deadline=None)
def test_sets_are_those_of_the_definition(plain: Plain) -> None:
    graph = graph_of(*plain)
    edges, n, r = edges_of(graph), len(graph.entities), len(graph.relations)
    found = {rule: Candidates(graph.adjacency(), rule) for rule in ("range", "kind", "all")}
    for relation in range(2 * r):
        sets = {
            rule: set(one.of(relation).nonzero().flatten().tolist()) for rule, one in found.items()
        }
        assert sets["range"] <= sets["kind"] <= sets["all"]
        for rule in RULES:
            assert sets[rule] == set_by_hand(edges, n, r, rule, relation)


@hypothesis.given(graphs(), st.sampled_from(["auto", *RULES]))
@hypothesis.settings(max_examples=60, deadline=None)
def test_no_known_answer_is_lost(plain: Plain, rule: Rule) -> None:
    graph = graph_of(*plain)
    chosen = Candidates(graph.adjacency(), rule)
    for _, relation, tail in edges_of(graph):
        assert chosen.of(relation)[tail]


@pytest.mark.parametrize("seed", range(3))
def test_losses_are_those_of_leaving_out_one_by_one(seed: int) -> None:
    graph = random_graph(9, 3, 14, seed)
    losses = Candidates(graph.adjacency()).losses()
    edges = edges_of(graph)
    for rule, (lost, triples) in losses.items():
        for relation in range(6):
            assert int(triples[relation]) == sum(label == relation for _, label, _ in edges)
            assert int(lost[relation]) == lost_by_hand(graph, rule, relation)
    assert int(losses["range"][0].sum()) > int(losses["kind"][0].sum()), "a kind loses fewer"


def people_and_towns(people: int, towns: int) -> KnowledgeGraph:
    """Everyone has a mother, and was born in a town, as she was; towns are in one of three."""
    born = [(k, 0, people + k % towns) for k in range(people)]
    mothers = [(k, 1, (k * 7 + 1) % people) for k in range(people)]
    places = [(people + k, 2, people + k % 3) for k in range(towns)]
    rows: list[Triple] = born + mothers + places
    return graph_of({"train": rows, "test": [(0, 1, 2)]})


def test_a_mother_is_not_a_town() -> None:
    graph = people_and_towns(150, 10)
    chosen = Candidates(graph.adjacency("train"))
    assert chosen.rule_for(0) == "range" and chosen.of(0).nonzero().flatten().tolist() == [
        *range(150, 160)
    ]
    assert chosen.rule_for(1) == "kind", "everyone is the mother of one person: a new one may come"
    assert chosen.of(1).nonzero().flatten().tolist() == [*range(150)]


def test_a_graph_that_is_too_small_restricts_nothing() -> None:
    graph = people_and_towns(20, 5)
    triples = graph.adjacency("train")
    assert len(triples.ends.values) < 133
    chosen = Candidates(triples)
    assert {chosen.rule_for(relation) for relation in range(6)} == {"all"}
    assert bool(chosen.of(1).all())
    assert not bool(Candidates(triples, "kind").of(1)[20:].any()), "unless that is asked for"


def test_a_relation_that_loses_more_than_the_others_is_left_free() -> None:
    """Its ends are of kinds of their own: pooled that is little, for itself it is much."""
    rows = [(k, 0, (k + 1) % 600) for k in range(600)]
    odd = [(k, 1, 600 + k) for k in range(5)]
    more = [(600 + k, 2 + k, 605 + k) for k in range(5)]  # so that they are something by themselves
    graph = graph_of({"train": rows + odd + more, "test": [(0, 0, 5)]})
    chosen = Candidates(graph.adjacency("train"))
    lost, triples = chosen.losses()["kind"]
    assert (int(lost[1]), int(triples[1])) == (5, 5)
    assert upper_end(int(lost.sum()), int(triples.sum())) < LOST, "pooled"
    assert chosen.rule_for(0) == "kind" and chosen.rule_for(1) == "all"


def test_many_relations_are_not_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MANY", 5)
    triples = people_and_towns(150, 10).adjacency("train")
    chosen = Candidates(triples)
    assert chosen.rule_for(1) == "all" and chosen.rule_for(0) == "range"
    assert bool(Candidates(triples, "kind").of(1).all())


def test_masks_are_rows_of_the_sets() -> None:
    chosen = Candidates(people_and_towns(150, 10).adjacency("train"))
    relations = torch.tensor([1, 0, 1])
    mask = chosen.mask(relations)
    assert torch.equal(mask, torch.stack([chosen.of(k) for k in (1, 0, 1)]))


def test_the_upper_end_bounds_the_share() -> None:
    """At the end p of the interval, seeing as few losses has a probability of about 5 %."""
    for lost, triples in ((0, 133), (3, 400), (20, 1000)):
        p = upper_end(lost, triples)
        chance = torch.distributions.Binomial(triples, torch.tensor(p, dtype=torch.float64))
        few = sum(float(chance.log_prob(torch.tensor(float(k))).exp()) for k in range(lost + 1))
        assert 0.02 < few < 0.08
