"""Beam search and bidirectional scoring, against sums over all paths."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dcgraph.experiments.tasks.paths import decoding
from dcgraph.experiments.tasks.paths.decoding import (
    INVERSE_TEMPERATURES,
    beam_scores,
    beam_search,
    bidirectional_steps,
    step_scores,
)
from dcgraph.experiments.tasks.paths.evaluation import Score, best_of, evaluation_sets_of
from dcgraph.experiments.tasks.paths.model import (
    Bidirectional,
    ComplEx,
    DiscreteComplEx,
    PathModel,
    Shape,
)
from path_models import MODELS
from small_graphs import graph_of, queries_of

ENTITIES, RELATIONS = 9, 4  # inverses among the latter
SHAPE = Shape(entities=ENTITIES, relations=RELATIONS, width=6)
SOURCES = torch.arange(9, dtype=torch.int32)
BIDIRECTIONAL = ["bilinear", "complex", "discrete", "distmult"]
PATHS = torch.randint(4, (9, 4), dtype=torch.int32, generator=torch.Generator().manual_seed(0))


def by_beam(model: Score, width: int, inverse_temperature: float = 1.0) -> Score:
    return beam_scores(step_scores(model, inverse_temperature), width)


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> PathModel:
    torch.manual_seed(0)
    return MODELS[request.param](SHAPE).eval()


def transitions(model: PathModel, inverse_temperature: float = 1.0) -> Tensor:
    """The probabilities of all answers to all single relations: relation, from, to."""
    with torch.no_grad():
        tables = [
            (
                inverse_temperature
                * model(SOURCES, torch.full((9, 1), relation, dtype=torch.int32))
            ).softmax(1)
            for relation in range(SHAPE.relations)
        ]
    return torch.stack(tables).double()


@torch.no_grad()
@pytest.mark.parametrize("inverse_temperature", [1.0, 1.7])
def test_beam_search_over_all_entities_sums_over_all_paths(
    model: PathModel, inverse_temperature: float
) -> None:
    steps = transitions(model, inverse_temperature)
    found = by_beam(model, SHAPE.entities, inverse_temperature)(SOURCES, PATHS)
    for query, path in enumerate(PATHS.tolist()):
        distribution = torch.eye(SHAPE.entities).double()[query]
        for relation in path:
            distribution = distribution @ steps[relation]
        torch.testing.assert_close(found[query].exp().double(), distribution, atol=1e-6, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("beam", [1, 2, 5])
def test_a_beam_keeps_the_likeliest(model: PathModel, beam: int) -> None:
    steps = transitions(model)
    for query, path in enumerate(PATHS.tolist()):
        some = slice(query, query + 1)
        beams = list(beam_search(step_scores(model), SOURCES[some], PATHS[some], beam))
        distribution = torch.eye(SHAPE.entities).double()[query]
        for relation, now in zip(path, beams, strict=True):
            distribution = distribution @ steps[relation]
            torch.testing.assert_close(
                now.log_weights[0].exp().double(), distribution, atol=1e-6, rtol=1e-4
            )
            kept = sorted(range(SHAPE.entities), key=lambda e: -float(distribution[e]))[:beam]
            assert now.kept[0].tolist() == kept
            rest = torch.zeros_like(distribution)
            rest[kept] = distribution[kept] / distribution[kept].sum()
            distribution = rest


@torch.no_grad()
@pytest.mark.parametrize("entities", [9, 5000])
def test_a_beam_of_width_1_is_the_argmax_of_the_paper(entities: int) -> None:
    """5,000 entities are a large codebook."""
    torch.manual_seed(1)
    model = DiscreteComplEx(replace(SHAPE, entities=entities)).eval()
    ours = model(SOURCES, PATHS).log_softmax(1)
    torch.testing.assert_close(by_beam(model, 1)(SOURCES, PATHS), ours, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(by_beam(model, 2)(SOURCES, PATHS), ours, atol=1e-3)


@torch.no_grad()
def test_a_beam_wider_than_all_entities_is_one_of_all(model: PathModel) -> None:
    wide, all_of_them = (by_beam(model, beam)(SOURCES, PATHS) for beam in (100, 9))
    assert torch.equal(wide, all_of_them)


def test_a_beam_needs_an_entity_and_a_relation() -> None:
    model = ComplEx(SHAPE).eval()
    with pytest.raises(ValueError, match="at least 1 entity"):
        by_beam(model, 0)(SOURCES, PATHS)
    with pytest.raises(ValueError, match="at least 1 relation"):
        by_beam(model, 2)(SOURCES, PATHS[:, :0])
    for inverse_temperature in (0.0, math.nan):
        with pytest.raises(ValueError, match="use a finite number above 0"):
            by_beam(model, 2, inverse_temperature)(SOURCES, PATHS)


@pytest.mark.parametrize(("lead", "needed"), [(3.0, 1.0), (1.5, 1.5), (0.7, 3.0)])
def test_an_inverse_temperature_at_which_a_small_doubt_is_none(lead: float, needed: float) -> None:
    """From 0 the first relation leads to 1, which is ahead of 2; the second from 1 to 3 to 8.

    From 2 it leads only to 9, which is likelier than each of those six if 2 has more than a sixth
    of the probability of 1.
    """
    entities = 10
    steps = torch.full((2, entities, entities), -20.0)
    steps[0, 0, 1], steps[0, 0, 2] = 0.0, -lead
    steps[1, 1, 3:9] = steps[1, 2, 9] = 0.0
    triples = [(0, 0, 1), *((1, 1, tail) for tail in range(3, 9)), (2, 1, 9)]
    two, one = queries_of([(0, [0, 1], 5)]), queries_of([(1, [1], 5)])

    def score(source: Tensor, path: Tensor) -> Tensor:
        return steps[path.squeeze(1), source]

    adjacency = graph_of({"train": triples}, entities, 2).adjacency()
    asked = evaluation_sets_of(adjacency, {"validation": [one, two]}, "range")["validation"]
    assert len(asked) == 2

    def chosen(beam: int) -> float:
        ways = {
            inverse_temperature: by_beam(score, beam, inverse_temperature)
            for inverse_temperature in INVERSE_TEMPERATURES
        }
        return best_of(ways, asked, "MQ", block=8)

    assert chosen(4) == needed
    assert chosen(1) == 1.0, "an argmax needs none"


# Bidirectional scoring


@pytest.fixture(params=BIDIRECTIONAL)
def both_ways(request: pytest.FixtureRequest) -> Bidirectional:
    torch.manual_seed(0)
    made = MODELS[request.param](SHAPE).eval()
    assert isinstance(made, Bidirectional)
    return made


def scores_along(model: PathModel, relation: int) -> Tensor:
    """From every entity (rows) to every entity."""
    scores: Tensor = model(SOURCES, torch.full((ENTITIES, 1), relation).int())
    return scores


@torch.no_grad()
def test_source_queries_score_sources(both_ways: Bidirectional) -> None:
    for relation in range(RELATIONS):
        along = both_ways.relations[torch.full((ENTITIES,), relation)]
        back = F.linear(both_ways.source_queries(both_ways.entities, along), both_ways.candidates())
        torch.testing.assert_close(back.T, scores_along(both_ways, relation), atol=1e-5, rtol=1e-4)


def steps_of(model: PathModel, weight: float, inverse_temperature: float = 1.0) -> Tensor:
    """Relation, from, to; by the definition."""
    scores = torch.stack([scores_along(model, r) for r in range(RELATIONS)])
    there = (inverse_temperature * scores.double()).softmax(2)
    back = there.roll(RELATIONS // 2, 0).mT  # of the inverse relation
    return there ** (1 - weight) * back**weight


@torch.no_grad()
@pytest.mark.parametrize("inverse_temperature", [1.0, 2.0])
@pytest.mark.parametrize("weight", [0.0, 0.25, 0.5, 1.0])
def test_bidirectional_beam_search_over_all_entities_sums_over_all_paths(
    both_ways: Bidirectional, weight: float, inverse_temperature: float
) -> None:
    """Up to a factor of the whole query: those that are kept are scaled to a sum of one."""
    steps = steps_of(both_ways, weight, inverse_temperature)
    found = beam_scores(step_scores(both_ways, inverse_temperature, weight), ENTITIES)(
        SOURCES, PATHS
    )
    for query, path in enumerate(PATHS.tolist()):
        weights = torch.eye(ENTITIES).double()[query]
        for relation in path:
            weights = weights @ steps[relation]
        distribution = weights / weights.sum()
        torch.testing.assert_close(
            found[query].softmax(0).double(), distribution, atol=1e-6, rtol=1e-4
        )


@torch.no_grad()
def test_without_a_weight_it_is_plain_beam_search(both_ways: Bidirectional) -> None:
    beam = by_beam(both_ways, 2, 1.5)(SOURCES, PATHS)
    for weight in (0.0, None):
        assert torch.equal(
            beam_scores(step_scores(both_ways, 1.5, weight), 2)(SOURCES, PATHS), beam
        )


@torch.no_grad()
def test_relations_met_later_are_counted_too(both_ways: Bidirectional) -> None:
    """The partitions of a relation are computed where it is first met."""
    weighed = bidirectional_steps(both_ways)
    for relation in (2, 0, 2):
        path = torch.full((ENTITIES, 1), relation).int()
        expected = steps_of(both_ways, 0.5)[relation]
        found = weighed(0.5)(SOURCES, path).softmax(1).double()
        distribution = expected / expected.sum(1, keepdim=True)
        torch.testing.assert_close(found, distribution, atol=1e-6, rtol=1e-4)


def test_what_takes_a_cpu_long_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for many, said in ((ENTITIES, False), (ENTITIES - 1, True)):
        monkeypatch.setattr(decoding, "_MANY", many)
        weighed = bidirectional_steps(MODELS["complex"](SHAPE))
        weighed(0.0)(SOURCES, PATHS[:, :1])
        assert "Bidirectional" not in caplog.text
        for _ in range(2):
            weighed(0.5)(SOURCES, PATHS[:, :1])
        assert caplog.text.count("Bidirectional scoring takes a CPU a while") == said


def test_other_models_and_weights_without_sense_are_refused() -> None:
    for name in set(MODELS) - set(BIDIRECTIONAL):
        with pytest.raises(ValueError, match="bidirectional scoring is not implemented for"):
            bidirectional_steps(MODELS[name](SHAPE))
    with pytest.raises(ValueError, match="bidirectional scoring is not implemented for"):
        bidirectional_steps(nn.Linear(2, 2))
    weighed = bidirectional_steps(MODELS["complex"](SHAPE))
    for weight in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"lies in \[0, 1\]"):
            weighed(weight)
