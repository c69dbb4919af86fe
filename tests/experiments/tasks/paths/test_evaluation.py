"""Ranks and protocols: against sets and loops, and against PyKEEN for single triples."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import pykeen_reference
from dcgraph.experiments.engine.metrics import Ties
from dcgraph.experiments.tasks.paths.data.graph import KnowledgeGraph, Queries, inverse, single_hops
from dcgraph.experiments.tasks.paths.data.walks import sample
from dcgraph.experiments.tasks.paths.evaluation import (
    METRICS,
    TIES,
    EvaluationSet,
    Protocol,
    Ranks,
    evaluate,
    evaluation_sets_of,
    negatives,
    rank,
    rank_all,
)
from small_graphs import (
    Plain,
    Triple,
    edges_of,
    graph_of,
    graphs,
    queries_of,
    queries_on,
    random_graph,
    reached_by,
    rows_of,
)

PROTOCOLS: list[Protocol] = ["range", "all"]
SHORT = dict.fromkeys(("train", "validation", "test"), range(2, 4))  # lengths of sampled paths


def score(source: Tensor, path: Tensor, entities: int = 7) -> Tensor:
    """Few different numbers, so that there are many ties; each depends on the whole query."""
    seed = source + (path * torch.arange(2, 2 + path.shape[1])).sum(1)
    return ((seed.unsqueeze(1) * 3 + torch.arange(entities) ** 2) % 5).float()


def asked(graph: KnowledgeGraph, groups: list[Queries], protocol: Protocol) -> EvaluationSet:
    return evaluation_sets_of(graph.adjacency(), {"test": groups}, protocol)["test"]


def by_hand(
    edges: set[Triple], rows: list[tuple[int, list[int], int]], entities: int, protocol: Protocol
) -> list[tuple[int, int, int]]:
    """Negatives with a higher score, with the same score, and all of them, for each query."""
    found = []
    for source, path, target in rows:
        candidates = set(range(entities))
        if protocol == "range":
            candidates = {tail for _, label, tail in edges if label == path[-1]}
        others = candidates - reached_by(edges, source, path) - {target}
        (own,) = score(torch.tensor([source]), torch.tensor([path]), entities).tolist()
        higher = sum(own[other] > own[target] for other in others)
        same = sum(own[other] == own[target] for other in others)
        found.append((higher, same, len(others)))
    return found


def inverses(
    rows: list[tuple[int, list[int], int]], relations: int
) -> list[tuple[int, list[int], int]]:
    return [(t, inverse(torch.tensor(p[::-1]), relations).tolist(), s) for s, p, t in rows]


@given(graphs(), st.data(), st.sampled_from(PROTOCOLS))
@settings(max_examples=30)
def test_ranks_by_hand(plain: Plain, data: st.DataObject, protocol: Protocol) -> None:
    """Queries of all kinds: some reach nothing, some have a target that they do not reach."""
    rows = {hops: data.draw(queries_on(plain, hops)) for hops in (1, 3)}
    graph, edges = graph_of(*plain), edges_of(graph_of(*plain))
    entities, r = len(graph.entities), len(graph.relations)
    questions = asked(graph, [queries_of(some) for some in rows.values()], protocol)
    ranks = rank_all(lambda s, p: score(s, p, entities), questions, block=3)
    skipped = 0
    for hops, some in rows.items():
        every = some + inverses(some, r) if protocol == "all" else some
        truth = by_hand(edges, every, entities, protocol)
        skipped += sum(not against for *_, against in truth)
        truth = [each for each in truth if each[2]]
        ours = ranks.get(hops)
        found = [] if ours is None else [ours.higher, ours.same, ours.negatives]
        assert list(zip(*(t.tolist() for t in found), strict=True)) == truth
    assert questions.skipped == skipped


RULES: dict[str, Callable[[int, int], Fraction]] = {
    "optimistic": lambda higher, same: Fraction(1 + higher),
    "pessimistic": lambda higher, same: Fraction(1 + higher + same),
    "realistic": lambda higher, same: Fraction(1 + higher + 1 + higher + same, 2),
}


@pytest.mark.parametrize("ties", list(TIES))
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_averages_by_hand(ties: Ties, protocol: Protocol) -> None:
    graph = random_graph(18, 3, 60, seed=0)
    edges, groups = edges_of(graph), sample(graph, 0, SHORT)["test"]
    result = evaluate(lambda s, p: score(s, p, 18), asked(graph, groups, protocol), ties, block=7)
    truths = {}
    for group in groups:
        rows = rows_of(group) + (inverses(rows_of(group), 3) if protocol == "all" else [])
        truths[group.hops] = [s for s in by_hand(edges, rows, 18, protocol) if s[2]]
    everything = [each for some in truths.values() for each in some]

    def averages(counts: list[tuple[int, int, int]]) -> dict[str, float]:
        ranks = [RULES[ties](higher, same) for higher, same, _ in counts]
        quantiles = [(n - (r - 1)) / n for r, (_, _, n) in zip(ranks, counts, strict=True)]
        known = {
            "MQ": sum(quantiles) / len(counts),
            "MRR": sum(1 / rank for rank in ranks) / len(counts),
            **{
                f"H@{k}": Fraction(sum(rank <= k for rank in ranks), len(counts))
                for k in (1, 3, 10)
            },
        }
        return {name: float(known[name]) for name in METRICS[protocol]}

    assert result.averages == pytest.approx(averages(everything))
    for hops, some in truths.items():
        assert result.by_length[hops] == pytest.approx(averages(some))
    assert (result.queries, result.protocol, result.ties) == (len(everything), protocol, ties)
    assert f"ties: {ties}" in result.words() and f"{len(everything):,} queries" in result.words()


def test_single_triples_as_pykeen_has_them() -> None:
    graph = pykeen_reference.graph()
    answers = json.loads(pykeen_reference.ANSWERS.read_text())

    def scores(source: Tensor, path: Tensor) -> Tensor:
        relation, given, every = path, source.unsqueeze(1), torch.arange(pykeen_reference.ENTITIES)
        r = pykeen_reference.RELATIONS
        tails = pykeen_reference.scores(given, relation, every)
        heads = pykeen_reference.scores(every, relation - r, given)
        return torch.where(relation < r, tails, heads)

    questions = asked(graph, [single_hops(graph.triples["test"])], "all")
    found = {
        ties: evaluate(scores, questions, ties).averages for ties in ("optimistic", "pessimistic")
    }
    found["realistic"] = evaluate(scores, questions).averages  # the default
    for ties, averages in found.items():
        assert averages == pytest.approx(answers[ties], abs=1e-7)  # PyKEEN has float32
    assert len({averages["MRR"] for averages in found.values()}) == 3, "there are ties"


def test_the_papers_rule_counts_strictly_higher_scores() -> None:
    equal = Ranks(*torch.tensor([[0], [20], [20]]).int())
    assert equal.ranks("optimistic").item() == 1 and equal.quantiles("optimistic").item() == 1
    assert equal.ranks().item() == 11 and equal.quantiles().item() == 0.5
    assert equal.ranks("pessimistic").item() == 21 and equal.quantiles("pessimistic").item() == 0


def test_what_is_not_a_number_is_no_good_answer() -> None:
    nan = math.nan
    scores = torch.tensor([[1.0, 2.0, 3.0], [nan, 2.0, 3.0], [1.0, nan, 3.0], [nan, nan, nan]])
    others = torch.tensor([[False, True, True]] * 4)
    found = rank(scores, torch.zeros(4, dtype=torch.int64), others)
    assert found.higher.tolist() == [2, 2, 2, 2] and found.same.tolist() == [0] * 4


def test_ranks_under_vmap() -> None:
    """A population measures all its replicas at once."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(5, (3, 8, 12), generator=generator).float()
    target = torch.randint(12, (8,), generator=generator)
    others = torch.rand(8, 12, generator=generator) < 0.6
    mapped = torch.func.vmap(lambda s: rank(s, target, others).ranks())(scores)
    assert mapped.tolist() == [rank(s, target, others).ranks().tolist() for s in scores]


def test_queries_without_negatives_are_left_out() -> None:
    # By relation 0 one comes to 1 and 2, and from 0 to both of them.
    graph = graph_of({"train": [(0, 0, 1), (3, 0, 1)], "test": [(0, 0, 2)]})
    rows = [(0, [0], 2), (3, [0], 1)]
    questions = asked(graph, [queries_of(rows)], "range")
    assert (len(questions), questions.skipped) == (1, 1)
    assert questions.tables[0]["source"].tolist() == [3]
    assert (
        "; 1 without negatives left out;"
        in evaluate(lambda s, p: score(s, p, 4), questions).words()
    )
    assert (len(asked(graph, [queries_of(rows)], "all")), questions.first(5).skipped) == (4, 1)
    nothing = asked(graph, [queries_of(rows[:1])], "range")
    with pytest.raises(ValueError, match="no query has negatives"):
        evaluate(score, nothing)


def test_a_single_candidate_is_a_negative_unless_it_is_the_target() -> None:
    # By relation 0 one comes to 1 and 2, and from 0 only to 1: the candidate 2 is left.
    graph = graph_of({"train": [(0, 0, 1), (3, 0, 2)]})
    questions = asked(graph, [queries_of([(0, [0], 1), (0, [0], 2), (0, [0], 3)])], "range")
    assert (questions.tables[0]["target"].tolist(), questions.skipped) == ([1, 3], 1)
    assert rank_all(lambda s, p: score(s, p, 4), questions)[1].negatives.tolist() == [1, 1]


def test_splits_share_their_sets() -> None:
    graph = random_graph(18, 3, 60, seed=0)
    splits = sample(graph, 0, SHORT)
    both = evaluation_sets_of(graph.adjacency(), splits, "range")
    assert all(both[split].constants is both["train"].constants for split in splits)
    for split, groups in splits.items():
        by_itself = asked(graph, groups, "range")
        for ours, own in zip(both[split].tables, by_itself.tables, strict=True):
            mine = negatives(both[split].constants, ours, 18)
            assert torch.equal(mine, negatives(by_itself.constants, own, 18))


def test_the_first_queries_are_a_small_set() -> None:
    graph = random_graph(18, 3, 60, seed=0)
    questions = asked(graph, sample(graph, 0, SHORT)["test"], "all")
    small = questions.first(2)
    assert len(small) == 2 * len(small.tables) < len(questions)
    assert set(evaluate(lambda s, p: score(s, p, 18), small).by_length) == {1, 2, 3}


def test_wrong_settings_are_errors() -> None:
    graph = random_graph(18, 3, 60, seed=0)
    questions = asked(graph, sample(graph, 0, SHORT)["test"], "all")
    with pytest.raises(ValueError, match="block=0, but at least 1 query is asked at once"):
        evaluate(score, questions, block=0)
    ranks = Ranks(*torch.tensor([[0], [1], [2]]).int())
    for wrong in ("strict", "reallistic"):
        with pytest.raises(Exception, match="ties"):  # a ValueError, or beartype before it
            ranks.ranks(wrong)  # type: ignore[arg-type]
