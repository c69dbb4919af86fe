"""Steps that look back, against their definition."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dcgraph.experiments.tasks.paths.beams import by_beam, by_steps
from dcgraph.experiments.tasks.paths.composing import PathModel, Reversible, Shape
from dcgraph.experiments.tasks.paths.looking_back import looking_back, step
from path_models import MODELS

ENTITIES, RELATIONS = 9, 4  # inverses among the latter
SHAPE = Shape(entities=ENTITIES, relations=RELATIONS, width=6)
SOURCES = torch.arange(ENTITIES, dtype=torch.int32)
PATHS = torch.randint(RELATIONS, (9, 3), generator=torch.Generator().manual_seed(0)).int()
WITH_A_WAY_BACK = ["bilinear", "complex", "discrete", "distmult"]


@pytest.fixture(params=WITH_A_WAY_BACK)
def model(request: pytest.FixtureRequest) -> Reversible:
    torch.manual_seed(0)
    made = MODELS[request.param](SHAPE).eval()
    assert isinstance(made, Reversible)
    return made


def scores_along(model: PathModel, relation: int) -> Tensor:
    """From every entity (rows) to every entity."""
    scores: Tensor = model(SOURCES, torch.full((ENTITIES, 1), relation).int())
    return scores


@torch.no_grad()
def test_a_query_back_scores_sources(model: Reversible) -> None:
    for relation in range(RELATIONS):
        along = model.relations[torch.full((ENTITIES,), relation)]
        back = F.linear(model.queries_back(model.entities, along), model.candidates())
        torch.testing.assert_close(back.T, scores_along(model, relation), atol=1e-5, rtol=1e-4)


def steps_of(model: PathModel, weight: float, sharpness: float = 1.0) -> Tensor:
    """Relation, from, to; by the definition."""
    scores = torch.stack([scores_along(model, r) for r in range(RELATIONS)])
    there = (sharpness * scores.double()).softmax(2)
    back = there.roll(RELATIONS // 2, 0).mT  # of the inverse relation
    return there ** (1 - weight) * back**weight


@torch.no_grad()
@pytest.mark.parametrize("sharpness", [1.0, 2.0])
@pytest.mark.parametrize("weight", [0.0, 0.25, 0.5, 1.0])
def test_a_beam_of_all_entities_sums_over_all_paths(
    model: Reversible, weight: float, sharpness: float
) -> None:
    """Up to a factor of the whole query: those that are followed are scaled to a sum of one."""
    steps = steps_of(model, weight, sharpness)
    found = by_steps(step(model, sharpness, weight), ENTITIES)(SOURCES, PATHS)
    for query, path in enumerate(PATHS.tolist()):
        weights = torch.eye(ENTITIES).double()[query]
        for relation in path:
            weights = weights @ steps[relation]
        law = weights / weights.sum()
        torch.testing.assert_close(found[query].softmax(0).double(), law, atol=1e-6, rtol=1e-4)


@torch.no_grad()
def test_without_a_weight_it_is_a_beam(model: Reversible) -> None:
    beam = by_beam(model, 2, 1.5)(SOURCES, PATHS)
    for weight in (0.0, None):
        assert torch.equal(by_steps(step(model, 1.5, weight), 2)(SOURCES, PATHS), beam)


@torch.no_grad()
def test_relations_met_later_are_counted_too(model: Reversible) -> None:
    """The partitions of a relation are computed where it is first met."""
    weighed = looking_back(model)
    for relation in (2, 0, 2):
        path = torch.full((ENTITIES, 1), relation).int()
        expected = steps_of(model, 0.5)[relation]
        found = weighed(0.5)(SOURCES, path).softmax(1).double()
        law = expected / expected.sum(1, keepdim=True)
        torch.testing.assert_close(found, law, atol=1e-6, rtol=1e-4)


def test_what_takes_a_cpu_long_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for many, said in ((ENTITIES, False), (ENTITIES - 1, True)):
        monkeypatch.setattr("dcgraph.experiments.tasks.paths.looking_back._MANY", many)
        weighed = looking_back(MODELS["complex"](SHAPE))
        weighed(0.0)(SOURCES, PATHS[:, :1])
        assert "ways back" not in caplog.text
        for _ in range(2):
            weighed(0.5)(SOURCES, PATHS[:, :1])
        assert caplog.text.count("The ways back take a CPU a while") == said


def test_who_has_no_way_back_and_weights_without_sense_are_refused() -> None:
    for name in set(MODELS) - set(WITH_A_WAY_BACK):
        with pytest.raises(ValueError, match="knows no way back"):
            looking_back(MODELS[name](SHAPE))
    with pytest.raises(ValueError, match="knows no way back"):
        looking_back(nn.Linear(2, 2))
    weighed = looking_back(MODELS["complex"](SHAPE))
    for weight in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"lies in \[0, 1\]"):
            weighed(weight)
