"""The task of path queries: training on a ring, extrapolation, calibration, final metrics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dcgraph.experiments.engine import Outcome, train
from dcgraph.experiments.engine.jobs import Job
from dcgraph.experiments.engine.metrics import Metric, Metrics
from dcgraph.experiments.engine.models import calibration_of
from dcgraph.experiments.engine.records import read_record
from dcgraph.experiments.engine.runs import make_records, perform
from dcgraph.experiments.engine.task import Data
from dcgraph.experiments.report import Replica, write_report
from dcgraph.experiments.tasks.paths import decoding
from dcgraph.experiments.tasks.paths.data.graph import query_of
from dcgraph.experiments.tasks.paths.decoding import (
    BIDIRECTIONAL_WEIGHTS,
    INVERSE_TEMPERATURES,
    beam_scores,
    step_scores,
    walk,
)
from dcgraph.experiments.tasks.paths.evaluation import (
    Evaluation,
    EvaluationSet,
    best_of,
    evaluate,
    evaluation_sets_of,
)
from dcgraph.experiments.tasks.paths.model import PathModel
from dcgraph.experiments.tasks.paths.settings import (
    BIDIRECTIONAL_WEIGHT,
    INVERSE_TEMPERATURE,
    PathSettings,
)
from dcgraph.experiments.tasks.paths.task import Paths
from ring_of_paths import ENTITIES, settings_for
from small_graphs import graph_of, queries_of


def asked(data: Data, split: str) -> EvaluationSet:
    return EvaluationSet("all", ENTITIES, list(data.tables(split)), data.constants, 0)


def measured(found: Metrics, **how: Any) -> dict[str, float | None]:
    """The metrics over all lengths that were measured in one way, by name."""
    return {m.name: value for m, value in found.items() if m == Metric(m.name, **how)}


def assert_same(found: Metrics, expected: Evaluation, **how: Any) -> None:
    assert measured(found, **how) == pytest.approx(expected.averages, abs=1e-4)
    for length, averages in expected.by_length.items():
        for name in ("MRR", "H@10"):
            value = found[Metric(name, length=length, **how)]
            assert value == pytest.approx(averages[name], abs=1e-6)


def test_it_learns_the_ring_and_extrapolates(trained: tuple[Paths, Outcome]) -> None:
    """Trained on paths of up to three relations, asked for up to ten."""
    _, outcome = trained
    assert outcome.selected_by == Metric("MRR", "validation")
    by_length = [
        [found[Metric("MRR", length=k)] for k in range(1, 11)] for found in outcome.metrics
    ]
    assert max(min(value or 0 for value in some) for some in by_length) > 0.9


def test_final_metrics_are_those_of_each_model_by_itself(
    trained: tuple[Paths, Outcome],
) -> None:
    """With what was calibrated for it."""
    task, outcome = trained
    settings = outcome.replicas[0]
    assert isinstance(settings, PathSettings)
    data = task.data(settings)
    test = asked(data, "test")
    for replica in (0, 1):
        model, found = outcome.model(replica), outcome.metrics[replica]
        calibration = outcome.calibration[replica]
        assert set(calibration) == {INVERSE_TEMPERATURE, BIDIRECTIONAL_WEIGHT}
        temperature, weight = calibration.values()
        assert_same(found, evaluate(model, test))
        optimistic = evaluate(model, test, "optimistic").averages
        assert measured(found, ties="optimistic") == pytest.approx(optimistic)
        beam = beam_scores(step_scores(model, temperature), settings.beam)
        assert_same(found, evaluate(beam, test), decoder="beam")
        both_ways = step_scores(model, temperature, weight)
        beam = beam_scores(both_ways, settings.beam)
        assert_same(found, evaluate(beam, test), decoder="beam", bidirectional=True)
        argmax = beam_scores(both_ways, 1)
        assert_same(found, evaluate(argmax, test), bidirectional=True)
    with_one = replace(settings, beam=1)
    assert task.calibrate(outcome.model(0), with_one, data) == {}
    plain = task.final_metrics(outcome.model(0), with_one, data, {})
    assert plain == {
        metric: value
        for metric, value in task.final_metrics(outcome.model(0), settings, data, {}).items()
        if metric.decoder == "argmax" and not metric.bidirectional
    }


def test_final_metrics_take_the_calibration(trained: tuple[Paths, Outcome], ring: Path) -> None:
    task, outcome = trained
    settings = settings_for(ring)
    data, model = task.data(settings), outcome.model(0)
    calibration = {INVERSE_TEMPERATURE: 0.2, BIDIRECTIONAL_WEIGHT: 0.5}
    found = task.final_metrics(model, settings, data, calibration)
    flat, plain = (
        evaluate(beam_scores(step_scores(model, value, 0.5), settings.beam), asked(data, "test"))
        for value in (0.2, 1.0)
    )
    assert_same(found, flat, decoder="beam", bidirectional=True)
    assert flat.averages["MRR"] != pytest.approx(plain.averages["MRR"])
    without = task.final_metrics(model, settings, data, {})  # there may be no validation split
    beam = evaluate(beam_scores(step_scores(model), settings.beam), asked(data, "test"))
    assert_same(without, beam, decoder="beam")
    assert_same(without, beam, decoder="beam", bidirectional=True)


class Equal(nn.Module):
    """Gives all entities the same score."""

    def forward(self, source: Tensor, path: Tensor) -> Tensor:
        return torch.zeros(len(source), ENTITIES)


def test_equal_scores_are_the_best_only_with_optimistic_ties(ring: Path) -> None:
    task, settings = Paths(), settings_for(ring, beam=1)
    found = task.final_metrics(Equal(), settings, task.data(settings), {})
    optimistic = measured(found, ties="optimistic")
    assert optimistic == {"MRR": 1, "H@1": 1, "H@3": 1, "H@10": 1}
    by_length = [found[Metric("MRR", length=length)] for length in range(1, 11)]
    assert all(value is not None and value < 0.2 for value in by_length)


# Calibration


def test_calibration_is_the_best_on_validation_queries(trained: tuple[Paths, Outcome]) -> None:
    """First the inverse temperature, then with it the weight."""
    task, outcome = trained
    settings = outcome.replicas[0]
    assert isinstance(settings, PathSettings)
    validation = asked(task.data(settings), "validation")

    def mrr(temperature: float, weight: float | None = None) -> float:
        step = step_scores(outcome.model(0), temperature, weight)
        return evaluate(beam_scores(step, settings.beam), validation).averages["MRR"]

    temperature, weight = outcome.calibration[0].values()
    assert temperature == max(INVERSE_TEMPERATURES, key=mrr)
    assert weight == max(BIDIRECTIONAL_WEIGHTS, key=lambda weight: mrr(temperature, weight))


class FixedSteps(nn.Module):
    """A model with scores of single relations: from 0 by relation 0 or 1 to 1, ahead of 2.

    By relation 2 it goes from 1 to one of 3 to 8, and from 2 only to 9, which is likelier than each
    of those six unless 2 has less than a sixth of the probability of 1. So small leads need a high
    inverse temperature.
    """

    def __init__(self, leads: dict[int, float]) -> None:
        super().__init__()
        self.steps = torch.full((6, 10, 10), -20.0)
        for relation, lead in leads.items():
            self.steps[relation, 0, 1], self.steps[relation, 0, 2] = 0.0, -lead
        self.steps[2, 1, 3:9] = self.steps[2, 2, 9] = 0.0

    def forward(self, source: Tensor, path: Tensor) -> Tensor:
        return self.steps[path.long().squeeze(1), source.long()]


@pytest.mark.parametrize(
    ("validation_lead", "test_lead", "chosen"), [(3.0, 0.7, 1.0), (0.7, 3.0, 3.0)]
)
def test_calibration_is_on_the_validation_split_where_splits_disagree(
    validation_lead: float,
    test_lead: float,
    chosen: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Queries of validation begin with relation 0, those of the test with relation 1."""
    triples = [(0, 0, 1), (0, 1, 1), *((1, 2, tail) for tail in range(3, 9)), (2, 2, 9)]
    graph = graph_of({"train": triples}, entities=10, relations=3)
    splits = {
        "validation": [queries_of([(0, [0, 2], 5)])],
        "test": [queries_of([(0, [1, 2], 5)])],
    }
    sets = evaluation_sets_of(graph.adjacency(), splits, "range")
    data = Data({s: sets[s].tables for s in splits}, "", sets["test"].constants)
    task = Paths()
    monkeypatch.setattr(task, "graph", lambda name: graph)
    settings = PathSettings(graph="fixed", beam=4, monitor="MQ")
    model = FixedSteps({0: validation_lead, 1: test_lead})
    found = task.calibrate(model, settings, data)
    assert found == {INVERSE_TEMPERATURE: chosen}
    assert task.calibrate(model, settings, data.only("validation")) == found
    other = Data({"validation": data.splits["test"]}, "", data.constants)
    assert task.calibrate(model, settings, other) != found, "the test split has another best"


def test_the_weight_is_calibrated_on_the_validation_split_too(
    trained: tuple[Paths, Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, outcome = trained
    settings = outcome.replicas[0]
    assert isinstance(settings, PathSettings)
    data, seen = task.data(settings), []
    sizes = {split: data.size(split) for split in ("validation", "test")}

    def watched(scores: Any, asked: EvaluationSet, *given: Any) -> Any:
        seen.append(len(asked))
        return best_of(scores, asked, *given)

    monkeypatch.setattr(decoding, "best_of", watched)
    task.calibrate(outcome.model(0), settings, data)
    assert seen == [sizes["validation"]] * 2 and sizes["test"] not in seen


def test_training_calibrates_without_the_test_split(ring: Path) -> None:
    """And before anything is measured on it."""
    done: list[tuple[str, list[str]]] = []

    class Watched(Paths):
        def calibrate(
            self, model: nn.Module, settings: PathSettings, data: Data
        ) -> dict[str, float]:
            done.append(("calibrate", list(data.splits)))
            return super().calibrate(model, settings, data)

        def final_metrics(self, *given: Any) -> Metrics:
            done.append(("final_metrics", []))
            return super().final_metrics(*given)

    task, settings = Watched(), settings_for(ring, epochs=1, evaluate_every=1, beam=2)
    train(task, [settings, replace(settings, seed=1)], task.data(settings))
    assert done == [("calibrate", ["validation"])] * 2 + [("final_metrics", [])] * 2


def test_training_keeps_what_it_calibrated(ring: Path, tmp_path: Path) -> None:
    settings = settings_for(ring, epochs=1, evaluate_every=1)
    job = Job(settings, tmp_path / "record.json", tmp_path / "model.safetensors")
    (outcome,) = perform(Paths(), [job], tmp_path / "work")
    found = calibration_of(tmp_path)
    assert found == outcome.calibration[0] == read_record(job.record).calibration
    assert INVERSE_TEMPERATURE in found


# What it does, and shows


def test_the_panel_has_walks_of_each_length(trained: tuple[Paths, Outcome]) -> None:
    task, outcome = trained
    settings = outcome.replicas[0]
    assert isinstance(settings, PathSettings)
    (shown,) = task.panels(outcome.model(0), settings, task.data(settings))
    assert shown.title == "Decoded paths"
    lengths = [len(row) for row in getattr(shown, "rows")]  # noqa: B009
    assert lengths == [2, 2, 3, 3, 4, 4, 5, 5, 6, 6]


def test_the_page_shows_what_the_weights_were_selected_by(
    trained: tuple[Paths, Outcome], tmp_path: Path
) -> None:
    task, outcome = trained
    settings = outcome.replicas[0]
    assert isinstance(settings, PathSettings)
    records = make_records(task, outcome, task.data(settings))
    replicas = [Replica("ring", record) for record in records]
    write_report(tmp_path / "page.html", task, replicas, title="a ring", command="none")
    page = (tmp_path / "page.html").read_text()
    assert "MRR on the validation set, hard" in page and "every replica: MRR, argmax" in page


def test_single_relations_have_no_chain_to_look_at(ring: Path) -> None:
    """And nobody is warned: that is how it should be."""
    task, settings = Paths(), settings_for(ring, length=1, epochs=2, evaluate_every=1)
    outcome = train(task, [settings], task.data(settings))
    assert len(outcome.curve) == 2 and not any(look.probes for look in outcome.curve)


@torch.no_grad()
def test_in_eval_it_is_at_an_entity_after_every_hop(
    trained: tuple[Paths, Outcome], ring: Path
) -> None:
    task, outcome = trained
    model, graph = outcome.model(0), task.graph(str(ring))
    assert isinstance(model, PathModel)
    walked = walk(model, graph, query_of(graph, "e3", "next,skip, **next,skip"), top=3)
    now = graph.entities.index("e3")
    for relation, (stop,) in zip((0, 1, 2), walked.hops, strict=True):
        scores = model(torch.tensor([now]).int(), torch.tensor([[relation]]).int())
        now = int(scores.argmax())
        assert stop.entity == graph.entities[now]
        assert stop.probability == pytest.approx(float(scores.softmax(-1).max()), abs=1e-5)
    assert [a.probability for a in walked.answers] == sorted(
        (a.probability for a in walked.answers), reverse=True
    )


@pytest.mark.parametrize(
    "model", ["complex", "distmult", "bilinear", "transe", "rnn", "rop", "coke"]
)
def test_every_baseline_trains_in_the_engine(model: str, ring: Path) -> None:
    task = Paths()
    settings = settings_for(
        ring, model=model, epochs=4, evaluate_every=4, lr=0.01, layers=1, protocol="range",
        monitor="MQ", inverse="paths", dropout=0.0,
    )  # fmt: skip
    replicas = [settings, replace(settings, seed=1)]
    outcome = train(task, replicas, task.data(settings))
    (look,) = outcome.curve
    assert set(look.metrics) == {Metric("MQ", "validation"), Metric("H@10", "validation")}
    assert all(value is not None and value > 0 for value in look.loss)


def test_an_epoch_with_less_precision_and_penalties(ring: Path) -> None:
    task = Paths()
    settings = settings_for(
        ring, epochs=2, evaluate_every=2, precision="bf16", l2_entities=1e-5, l2_relations=1e-9,
        object_dropout=0.2, subject_dropout=0.2, relation_dropout=0.2, noise="reversed",
        estimator="straight_through_gumbel_softmax", gate="call",
    )  # fmt: skip
    outcome = train(task, [settings, replace(settings, seed=1)], task.data(settings))
    assert outcome.stopped_at == [None, None]
    assert task.execution(replace(settings, precision="tf32")).precision == "high"
    assert task.execution(settings).precision == "highest"
