"""Several entities followed at once, against sums over all paths."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dcgraph.tasks.paths.beams import by_beam, follow
from dcgraph.tasks.paths.composing import ComplEx, PathModel, Shape
from dcgraph.tasks.paths.hopping import DiscreteComplEx
from path_models import MODELS

SHAPE = Shape(entities=9, relations=4, width=6)
SOURCES = torch.arange(9, dtype=torch.int32)
PATHS = torch.randint(4, (9, 4), dtype=torch.int32, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> PathModel:
    torch.manual_seed(0)
    return MODELS[request.param](SHAPE).eval()


def transitions(model: PathModel) -> Tensor:
    """The probabilities of all answers to all single relations: relation, from, to."""
    with torch.no_grad():
        tables = [
            model(SOURCES, torch.full((9, 1), relation, dtype=torch.int32)).softmax(1)
            for relation in range(SHAPE.relations)
        ]
    return torch.stack(tables).double()


@torch.no_grad()
def test_a_beam_of_all_entities_sums_over_all_paths(model: PathModel) -> None:
    steps, found = transitions(model), by_beam(model, SHAPE.entities)(SOURCES, PATHS)
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
        beams = list(follow(model, SOURCES[some], PATHS[some], beam))
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
