"""The task of path queries: training on a ring, extrapolation, what is read out and shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dcgraph.experiments.tasks.paths.beams import INVERSE_TEMPERATURES, beam_scores, by_beam
from dcgraph.experiments.tasks.paths.bidirectional_steps import (
    BIDIRECTIONAL_WEIGHTS,
    bidirectional_steps,
    step,
)
from dcgraph.experiments.tasks.paths.composing import PathModel
from dcgraph.experiments.tasks.paths.protocols import EvaluationSet
from dcgraph.experiments.tasks.paths.walking import parse, walk
from torch import nn

from dcgraph.experiments.engine import Outcome, train
from dcgraph.experiments.engine.models import readout_of
from dcgraph.experiments.engine.records import make_records
from dcgraph.experiments.engine.runs import Job, perform
from dcgraph.experiments.engine.task import Data
from dcgraph.experiments.report import Replica, write_report
from dcgraph.experiments.tasks.paths.evaluation import evaluate
from dcgraph.experiments.tasks.paths.settings import PathSettings
from dcgraph.experiments.tasks.paths.task import BIDIRECTIONAL_WEIGHT, INVERSE_TEMPERATURE, Paths
from ring_of_paths import ENTITIES, settings_for, train_on, write_circle


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_circle(tmp_path_factory.mktemp("ring"))


@pytest.fixture(scope="module")
def trained(ring: Path) -> tuple[Paths, Outcome]:
    return train_on(ring)


def test_it_learns_the_ring_and_extrapolates(trained: tuple[Paths, Outcome], ring: Path) -> None:
    """Trained on paths of up to three relations, asked for up to ten."""
    task, outcome = trained
    settings = outcome.replicas[0]
    assert isinstance(settings, PathSettings)
    data = task.data(settings)
    records = make_records(task, outcome, data)
    best = max(records, key=lambda record: record["readout"]["H@10, length 10"])
    assert outcome.chosen_by == "MRR/argmax"
    for hops in range(1, 11):
        assert best["readout"][f"MRR, length {hops}"] > 0.9, hops
    # The population measures what each model alone is measured to have.
    exam = EvaluationSet("all", ENTITIES, list(data.tables("test")), data.shared, 0)
    readout = records[0]["readout"]
    inverse_temperature = readout[INVERSE_TEMPERATURE]
    asked = EvaluationSet("all", ENTITIES, list(data.tables("validation")), data.shared, 0)
    by_sharpness = {
        tried: evaluate(by_beam(outcome.model(0), settings.beam, tried), asked).averages["MRR"]
        for tried in INVERSE_TEMPERATURES
    }
    assert by_sharpness[inverse_temperature] == max(by_sharpness.values())
    followed = evaluate(by_beam(outcome.model(0), settings.beam, inverse_temperature), exam)
    assert readout["MRR, beam"] == pytest.approx(followed.averages["MRR"])
    for hops, averages in followed.by_length.items():
        assert readout[f"H@10, beam, length {hops}"] == pytest.approx(averages["H@10"])
    weighed = bidirectional_steps(outcome.model(0), inverse_temperature)
    by_weight = {
        weight: evaluate(beam_scores(weighed(weight), settings.beam), asked).averages["MRR"]
        for weight in BIDIRECTIONAL_WEIGHTS
    }
    assert by_weight[readout[BIDIRECTIONAL_WEIGHT]] == max(by_weight.values())
    looked = evaluate(beam_scores(weighed(readout[BIDIRECTIONAL_WEIGHT]), settings.beam), exam)
    assert readout["H@10, looking back"] == pytest.approx(looked.averages["H@10"])
    for hops, averages in looked.by_length.items():
        assert readout[f"MRR, looking back, length {hops}"] == pytest.approx(averages["MRR"])
    one = evaluate(beam_scores(weighed(readout[BIDIRECTIONAL_WEIGHT]), 1), exam)
    assert readout["MRR, argmax looking back"] == pytest.approx(one.averages["MRR"])
    argmax_alone = task.readout(outcome.model(0), replace(settings, beam=1), data)
    other_ways = ("beam", "back")
    assert argmax_alone == {
        name: v for name, v in readout.items() if not any(way in name for way in other_ways)
    }
    for replica in (0, 1):
        alone = evaluate(outcome.model(replica), exam).averages
        for name, value in alone.items():
            assert outcome.test[replica][f"{name}/argmax"] == pytest.approx(value, abs=1e-4)
    (shown,) = task.exhibits(outcome.model(0), settings, data)
    assert shown.title == "Paths it walked"
    lengths = [len(row) for row in getattr(shown, "rows")]  # noqa: B009
    assert lengths == [2, 2, 3, 3, 4, 4, 5, 5, 6, 6]


def test_steps_that_look_back_are_as_sharp_as_the_beam(
    trained: tuple[Paths, Outcome], ring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, outcome = trained
    settings = settings_for(ring)
    data, model = task.data(settings), outcome.model(0)
    for name, only in (("INVERSE_TEMPERATURES", 0.2), ("BIDIRECTIONAL_WEIGHTS", 0.5)):
        monkeypatch.setattr(f"dcgraph.experiments.tasks.paths.task.{name}", (only,))
    found = task.readout(model, settings, data)["MRR, looking back"]
    asked = EvaluationSet("all", ENTITIES, list(data.tables("test")), data.shared, 0)
    flat, plain = (
        evaluate(beam_scores(step(model, inverse_temperature, 0.5), settings.beam), asked).averages[
            "MRR"
        ]
        for inverse_temperature in (0.2, 1.0)
    )
    assert found == pytest.approx(flat) and found != pytest.approx(plain)


def test_sharpness_is_not_chosen_on_the_test(trained: tuple[Paths, Outcome]) -> None:
    """Without validation queries it is 1, and nothing is asked: this model has no answers."""
    task, outcome = trained
    settings = outcome.replicas[0]
    assert isinstance(settings, PathSettings)
    data = task.data(settings)
    alone = Data({"train": data.tables("train"), "test": data.tables("test")}, "", data.shared)
    assert task.inverse_temperature(nn.Module(), settings, alone, beam=4) == 1.0
    with pytest.raises(NotImplementedError):
        task.inverse_temperature(nn.Module(), settings, data, beam=4)


def test_the_page_shows_what_the_weights_were_chosen_by(
    trained: tuple[Paths, Outcome], tmp_path: Path
) -> None:
    task, outcome = trained
    records = make_records(task, outcome, task.data(outcome.replicas[0]))
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
    walked = walk(model, graph, parse(graph, "e3", "next,skip, **next,skip"), top=3)
    now = graph.entities.index("e3")
    for relation, (stop,) in zip((0, 1, 2), walked.hops, strict=True):
        scores = model(torch.tensor([now]).int(), torch.tensor([[relation]]).int())
        now = int(scores.argmax())
        assert stop.entity == graph.entities[now]
        assert stop.probability == pytest.approx(float(scores.softmax(-1).max()), abs=1e-5)
    assert [a.probability for a in walked.answers] == sorted(
        (a.probability for a in walked.answers), reverse=True
    )


def test_training_keeps_what_it_read_out(ring: Path, tmp_path: Path) -> None:
    settings = settings_for(ring, epochs=1, evaluate_every=1)
    job = Job(settings, tmp_path / "record.json", tmp_path / "model.safetensors")
    list(perform(Paths(), [job], tmp_path / "work"))
    found, (record, model) = readout_of(tmp_path), (job.record, job.model)
    assert model is not None and INVERSE_TEMPERATURE in found
    assert found == pytest.approx(json.loads(record.read_text())["readout"], abs=1e-4)


@pytest.mark.parametrize(
    "model", ["complex", "distmult", "bilinear", "transe", "rnn", "rop", "coke"]
)
def test_every_baseline_trains_in_the_engine(model: str, ring: Path) -> None:
    task = Paths()
    settings = settings_for(
        ring, model=model, epochs=4, evaluate_every=4, lr=0.01, layers=1, protocol="range",
        monitor="MQ", backwards="paths", dropout=0.0,
    )  # fmt: skip
    replicas = [settings, replace(settings, seed=1)]
    outcome = train(task, replicas, task.data(settings))
    (look,) = outcome.curve
    assert set(look.metrics) == {"MQ/argmax", "H@10/argmax"}, "no choices, so one way to decode"
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
    assert task.precision(replace(settings, precision="tf32")) == "high"
    assert task.precision(settings) == "highest"


def test_numbers_stand_by_the_way_to_answer() -> None:
    """Averages first, then each metric by length; what was not measured is an empty name."""
    names = ["MQ/argmax", "H@10/argmax", "MQ, ties as the paper", "MQ, length 1", "H@10, length 1"]
    names += [
        "MQ, length 10",
        "inverse_temperature of the beam",
        "MQ, beam",
        "MQ, looking back, length 10",
    ]
    alone, grid = Paths().arranged(names)
    assert alone == ["MQ/argmax", "H@10/argmax", "inverse_temperature of the beam"]
    assert list(grid) == ["MQ", "H@10", "MQ, length 1", "MQ, length 10", "H@10, length 1"]
    for row in grid.values():
        assert list(row) == ["argmax", "ties as the paper", "beam", "beam looking back"]
    assert list(grid["MQ"].values()) == ["MQ/argmax", "MQ, ties as the paper", "MQ, beam", ""]
    assert grid["MQ, length 10"]["beam looking back"] == "MQ, looking back, length 10"
    shown = {name for row in grid.values() for name in row.values()} | set(alone)
    assert shown == {*names, ""}, "nothing is lost"
    assert Paths().arranged(["MQ, by magic"]) == (["MQ, by magic"], {})
    assert list(Paths().arranged(["MQ, length 1"])[1]) == ["MQ, length 1"]
