"""Several entities followed at once, against sums over all paths."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dcgraph.experiments.tasks.paths.beams import SHARPNESSES, by_beam, follow, shares
from dcgraph.experiments.tasks.paths.composing import ComplEx, PathModel, Shape
from dcgraph.experiments.tasks.paths.evaluation import best_way
from dcgraph.experiments.tasks.paths.hopping import DiscreteComplEx
from dcgraph.experiments.tasks.paths.protocols import examine
from path_models import MODELS
from small_graphs import graph_of, queries_of

SHAPE = Shape(entities=9, relations=4, width=6)
SOURCES = torch.arange(9, dtype=torch.int32)
PATHS = torch.randint(4, (9, 4), dtype=torch.int32, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> PathModel:
    torch.manual_seed(0)
    return MODELS[request.param](SHAPE).eval()


def transitions(model: PathModel, sharpness: float = 1.0) -> Tensor:
    """The probabilities of all answers to all single relations: relation, from, to."""
    with torch.no_grad():
        tables = [
            (sharpness * model(SOURCES, torch.full((9, 1), relation, dtype=torch.int32))).softmax(1)
            for relation in range(SHAPE.relations)
        ]
    return torch.stack(tables).double()


@torch.no_grad()
@pytest.mark.parametrize("sharpness", [1.0, 1.7])
def test_a_beam_of_all_entities_sums_over_all_paths(model: PathModel, sharpness: float) -> None:
    steps = transitions(model, sharpness)
    found = by_beam(model, SHAPE.entities, sharpness)(SOURCES, PATHS)
    for query, path in enumerate(PATHS.tolist()):
        law = torch.eye(SHAPE.entities).double()[query]
        for relation in path:
            law = law @ steps[relation]
        torch.testing.assert_close(found[query].exp().double(), law, atol=1e-6, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("beam", [1, 2, 5])
def test_a_beam_keeps_the_likeliest(model: PathModel, beam: int) -> None:
    steps = transitions(model)
    for query, path in enumerate(PATHS.tolist()):
        some = slice(query, query + 1)
        beams = list(follow(shares(model), SOURCES[some], PATHS[some], beam))
        law = torch.eye(SHAPE.entities).double()[query]
        for relation, now in zip(path, beams, strict=True):
            law = law @ steps[relation]
            torch.testing.assert_close(now.everyone[0].exp().double(), law, atol=1e-6, rtol=1e-4)
            kept = sorted(range(SHAPE.entities), key=lambda e: -float(law[e]))[:beam]
            assert now.followed[0].tolist() == kept
            rest = torch.zeros_like(law)
            rest[kept] = law[kept] / law[kept].sum()
            law = rest


@torch.no_grad()
@pytest.mark.parametrize("entities", [9, 5000])
def test_a_beam_of_one_is_the_paper(entities: int) -> None:
    """5,000 entities are a large codebook."""
    torch.manual_seed(1)
    model = DiscreteComplEx(replace(SHAPE, entities=entities)).eval()
    ours = model(SOURCES, PATHS).log_softmax(1)
    torch.testing.assert_close(by_beam(model, 1)(SOURCES, PATHS), ours, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(by_beam(model, 2)(SOURCES, PATHS), ours, atol=1e-3)


@torch.no_grad()
def test_a_beam_of_more_than_all_is_one_of_all(model: PathModel) -> None:
    wide, all_of_them = (by_beam(model, beam)(SOURCES, PATHS) for beam in (100, 9))
    assert torch.equal(wide, all_of_them)


def test_a_beam_needs_an_entity_and_a_relation() -> None:
    model = ComplEx(SHAPE).eval()
    with pytest.raises(ValueError, match="at least 1 entity"):
        by_beam(model, 0)(SOURCES, PATHS)
    with pytest.raises(ValueError, match="at least 1 relation"):
        by_beam(model, 2)(SOURCES, PATHS[:, :0])
    for sharpness in (0.0, math.nan):
        with pytest.raises(ValueError, match="use a finite number above 0"):
            by_beam(model, 2, sharpness)(SOURCES, PATHS)


@pytest.mark.parametrize(("lead", "needed"), [(3.0, 1.0), (1.5, 1.5), (0.7, 3.0)])
def test_sharp_enough_that_a_small_doubt_is_none(lead: float, needed: float) -> None:
    """From 0 the first relation leads to 1, which is ahead of 2; the second from 1 to 3 to 8.

    From 2 it leads to 9 alone, which is likelier than each of those six if 2 has more than a sixth
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
    asked = examine(adjacency, {"validation": [one, two]}, "range")["validation"]
    assert len(asked) == 2

    def sharpest(beam: int) -> float:
        ways = {sharpness: by_beam(score, beam, sharpness) for sharpness in SHARPNESSES}
        return best_way(ways, asked, "MQ", block=8)

    assert sharpest(4) == needed
    assert sharpest(1) == 1.0, "an argmax needs none"
