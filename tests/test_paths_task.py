"""The task of path queries: settings, training on a ring, extrapolation, commands and tables."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dcgraph import cli
from dcgraph.report import Replica, write_report
from dcgraph.tasks import get_table, get_task
from dcgraph.tasks.datasets import DataError
from dcgraph.tasks.paths import data as path_data
from dcgraph.tasks.paths.beams import SHARPNESSES, by_beam, by_steps
from dcgraph.tasks.paths.composing import PathModel
from dcgraph.tasks.paths.data import load
from dcgraph.tasks.paths.evaluation import evaluate
from dcgraph.tasks.paths.looking_back import WEIGHTS, looking_back, step
from dcgraph.tasks.paths.protocols import Examination
from dcgraph.tasks.paths.queries import unpacked
from dcgraph.tasks.paths.settings import (
    FB15K_237,
    PAPER,
    PAPER_FB13,
    PAPER_FB15K_237,
    PRESETS,
    SMALL,
    PathSettings,
    compressed,
    quick,
)
from dcgraph.tasks.paths.task import SHARPNESS, WAY_BACK, Paths
from dcgraph.tasks.paths.walking import parse, walk
from dcgraph.training import Outcome, train
from dcgraph.training.models import ModelError, load_model, readout_of, save_model
from dcgraph.training.records import make_records
from dcgraph.training.runs import Job, perform
from dcgraph.training.tables import jobs
from dcgraph.training.task import Data
from small_graphs import write_ring

ENTITIES = 12
STEPS = {"next": 1, "skip": 5}


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve entities on a circle; one relation leads one on, the other five."""
    folder = tmp_path_factory.mktemp("ring")
    write_ring(folder, ENTITIES, STEPS)
    return folder


def settings_for(ring: Path, **changes: Any) -> PathSettings:
    base = replace(
        SMALL, graph=str(ring), dim=8, batch=24, epochs=150, lr=0.02, evaluate_every=30,
        gamma=0.02, alpha_step=0.01, subject_dropout=0.0, object_dropout=0.0, relation_dropout=0.0,
    )  # fmt: skip
    return replace(base, **changes)


@pytest.fixture(scope="module")
def trained(ring: Path) -> tuple[Paths, Outcome]:
    task = Paths()
    replicas = [settings_for(ring, seed=seed) for seed in (0, 1)]
    return task, train(task, replicas, task.data(replicas[0]))


@pytest.fixture(scope="module")
def saved(trained: tuple[Paths, Outcome], tmp_path_factory: pytest.TempPathFactory) -> Path:
    task, outcome = trained
    best = max((0, 1), key=outcome.score)
    path = tmp_path_factory.mktemp("models") / "best.safetensors"
    save_model(path, task, outcome.replicas[best], outcome.model(best), outcome.score(best))
    return path


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"length": 0}, "at least 1"),
        ({"triples": 0}, "at least 1"),
        ({"dim": 0}, "at least 1"),
        ({"beam": 0}, "at least 1"),
        ({"object_dropout": 1.0}, r"\[0, 1\)"),
        ({"l2_entities": -1.0}, "at least 0"),
        ({"init": 0.0}, "stay there"),
        ({"choose_by": "MRR"}, "not measured by protocol 'range'"),
        ({"model": "coke", "dim": 3}, "heads"),
        ({"beta_share": -1.0}, "share of tau"),
    ],
)
def test_settings_without_sense_are_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        replace(PAPER, **changes)


def test_presets_have_the_papers_settings_but_for_what_trains_better() -> None:
    assert (PAPER.epochs, PAPER.batch, PAPER.lr, PAPER.tau, PAPER.dim) == (200, 512, 1e-3, 4, 256)
    dropouts = [
        (s.subject_dropout, s.object_dropout, s.relation_dropout) for s in (PAPER, PAPER_FB13)
    ]
    assert dropouts == [(0.7, 0.1, 0.5), (0.1, 0.6, 0.2)]
    assert FB15K_237.backwards == "paths" and FB15K_237.choose_by == "MRR"
    papers = {"best": PAPER, "fb13": PAPER_FB13, "fb15k-237": PAPER_FB15K_237}
    for name, paper in papers.items():
        ours = PRESETS[name]
        same = compressed(paper, ours.epochs)
        differ = {f.name for f in fields(same) if getattr(same, f.name) != getattr(ours, f.name)}
        less_dropout = {"object_dropout", "relation_dropout"}
        own = {
            "best": {"triples"},
            "fb13": less_dropout | {"triples"},
            "fb15k-237": less_dropout,
        }[name]
        assert differ == own | {
            *("init", "lr", "decay", "precision", "tau", "beta_share", "estimator")
        }
        entities = {"wn11": 38_696, "fb13": 75_043, "fb15k-237": 14_541}[ours.graph]
        assert ours.beta_share * math.log(entities) == pytest.approx(1, rel=1e-3)
    for whole, compact in ((PAPER, compressed(PAPER, 50)), (FB15K_237, compressed(FB15K_237, 10))):
        last = [
            (s.epochs * s.moves * s.gamma, s.epochs * s.moves * s.alpha_step)
            for s in (whole, compact)
        ]
        assert last[0] == pytest.approx(last[1], rel=1e-3)


def test_a_recipe_for_another_graph_asks_for_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="set beta_share"):
        quick(replace(PAPER, graph="wn18rr"), 10)


def test_beta_by_the_number_of_entities_is_a_dial_of_each_replica() -> None:
    """The largest of n Gumbel values is about beta ln n: a share of 1 / ln n keeps it at tau."""
    one, two = PAPER, replace(PAPER, beta_share=1 / math.log(38_696))
    assert one.structure() == two.structure()
    at_end = []
    for settings in (one, two):
        dials = settings.dials()
        dials.load_state_dict({"calls": 10**6, "every": 1})
        at_end.append(dials.values()["beta"])
    assert at_end == pytest.approx([4.0, 4.0 / math.log(38_696)])
    assert one.structure() != replace(PAPER, noise="reversed").structure()


def test_training_tables_end_at_the_length_and_choosing_follows(ring: Path) -> None:
    task = Paths()

    def lengths(split: str, **changes: Any) -> list[int]:
        tables = task.data(settings_for(ring, **changes)).tables(split)
        tables = [unpacked(table) for table in tables] if split == "train" else tables
        return [table["path"].shape[1] for table in tables]

    assert lengths("train") == [1, 2, 3] and lengths("train", length=1) == [1]
    assert lengths("test") == list(range(1, 11))
    assert lengths("validation", choose_on="all") == [1, 2, 3, 4, 5]
    assert lengths("validation") == [1, 2, 3]
    assert lengths("validation", choose_on="next", length=1) == [2]
    with pytest.raises(DataError, match="--choose-on all"):
        lengths("validation", choose_on="next", length=5)


def test_an_epoch_may_have_triples_several_times(ring: Path) -> None:
    once, thrice = (
        [table["queries"] for table in Paths().data(settings_for(ring, triples=k)).tables("train")]
        for k in (1, 3)
    )
    assert torch.equal(thrice[0].unique(dim=0), once[0].unique(dim=0))
    assert (thrice[0].unique(dim=0, return_counts=True)[1] == 3).all()
    for longer, as_before in zip(thrice[1:], once[1:], strict=True):
        assert torch.equal(longer, as_before)


def test_triples_cannot_be_repeated_where_there_are_none(tmp_path: Path) -> None:
    write_ring(tmp_path, ENTITIES, STEPS)
    (tmp_path / "paths").mkdir()
    for split, source in (("train", "e0"), ("valid", "e1"), ("test", "e2")):
        (tmp_path / "paths" / f"{split}.txt").write_text(f"{source}\tnext,next\te5\n")
    with pytest.raises(
        DataError, match=r"triples=2, but no training path .+ has one relation alone"
    ):
        Paths().data(settings_for(tmp_path, triples=2))


def test_backwards_are_further_examples(ring: Path) -> None:
    task = Paths()
    data = task.data(settings_for(ring))
    single, double = data.tables("train")[:2]

    def asked(table: dict[str, torch.Tensor], way: str) -> dict[str, torch.Tensor]:
        rows = {name: tensor[:4] for name, tensor in table.items()}
        settings = settings_for(ring, backwards=way)
        return task.inputs(settings, data.shared, rows, training=True)

    assert len(asked(single, "none")["source"]) == len(asked(double, "triples")["source"]) == 4
    first = load(str(ring)).splits["train"][1][:4]
    for name, tensor in asked(double, "none").items():
        assert torch.equal(tensor, first.table()[name].long()), name
    for batch in (asked(single, "triples"), asked(double, "paths")):
        assert len(batch["source"]) == 8
        assert torch.equal(batch["source"][4:], batch["target"][:4])
        assert torch.equal(batch["target"][4:], batch["source"][:4])
        there, back = batch["path"][:4], batch["path"][4:].flip(1)
        assert ((there - back).abs() == len(STEPS)).all()


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
    exam = Examination("all", ENTITIES, list(data.tables("test")), data.shared, 0)
    readout = records[0]["readout"]
    sharpness = readout[SHARPNESS]
    asked = Examination("all", ENTITIES, list(data.tables("validation")), data.shared, 0)
    by_sharpness = {
        tried: evaluate(by_beam(outcome.model(0), settings.beam, tried), asked).averages["MRR"]
        for tried in SHARPNESSES
    }
    assert by_sharpness[sharpness] == max(by_sharpness.values())
    followed = evaluate(by_beam(outcome.model(0), settings.beam, sharpness), exam)
    assert readout["MRR, beam"] == pytest.approx(followed.averages["MRR"])
    for hops, averages in followed.by_length.items():
        assert readout[f"H@10, beam, length {hops}"] == pytest.approx(averages["H@10"])
    weighed = looking_back(outcome.model(0), sharpness)
    by_weight = {
        weight: evaluate(by_steps(weighed(weight), settings.beam), asked).averages["MRR"]
        for weight in WEIGHTS
    }
    assert by_weight[readout[WAY_BACK]] == max(by_weight.values())
    looked = evaluate(by_steps(weighed(readout[WAY_BACK]), settings.beam), exam)
    assert readout["H@10, looking back"] == pytest.approx(looked.averages["H@10"])
    for hops, averages in looked.by_length.items():
        assert readout[f"MRR, looking back, length {hops}"] == pytest.approx(averages["MRR"])
    one = evaluate(by_steps(weighed(readout[WAY_BACK]), 1), exam)
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
    for name, only in (("SHARPNESSES", 0.2), ("WEIGHTS", 0.5)):
        monkeypatch.setattr(f"dcgraph.tasks.paths.task.{name}", (only,))
    found = task.readout(model, settings, data)["MRR, looking back"]
    asked = Examination("all", ENTITIES, list(data.tables("test")), data.shared, 0)
    flat, plain = (
        evaluate(by_steps(step(model, sharpness, 0.5), settings.beam), asked).averages["MRR"]
        for sharpness in (0.2, 1.0)
    )
    assert found == pytest.approx(flat) and found != pytest.approx(plain)


def test_sharpness_is_not_chosen_on_the_test(trained: tuple[Paths, Outcome]) -> None:
    """Without validation queries it is 1, and nothing is asked: this model has no answers."""
    task, outcome = trained
    settings = outcome.replicas[0]
    assert isinstance(settings, PathSettings)
    data = task.data(settings)
    alone = Data({"train": data.tables("train"), "test": data.tables("test")}, "", data.shared)
    assert task.sharpness(nn.Module(), settings, alone, beam=4) == 1.0
    with pytest.raises(NotImplementedError):
        task.sharpness(nn.Module(), settings, data, beam=4)


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


def test_predict_and_evaluate(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = "next,next,skip,**next"
    assert cli.main(["predict", "paths", "e0", path, "--model", str(saved), "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "e0" and lines[1].startswith("  next -> e1  ") and lines[1].endswith("%")
    assert lines[3].startswith("  skip -> e7") and "**next -> ? (1 known)" in lines[4]
    assert lines[5].split()[0] == "1" and lines[5].endswith("e6  known") and len(lines) == 7
    assert cli.main(["evaluate", "paths", "--model", str(saved), "--ties", "pessimistic"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["ties"] == "pessimistic" and said["protocol"] == "all" and said["MRR"] > 0.9
    assert list(said["by length"]) == [str(hops) for hops in range(1, 11)]
    assert "ties: pessimistic" in said["in words"]
    arguments = ["--split", "validation", "--protocol", "range"]
    assert cli.main(["evaluate", "paths", "--model", str(saved), *arguments]) == 0
    assert {"MQ", "H@10"} <= set(json.loads(capsys.readouterr().out))


def test_predict_and_evaluate_by_a_beam(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for beam in ("1", "3"):
        assert cli.main(["evaluate", "paths", "--model", str(saved), "--beam", beam]) == 0
        said[beam] = json.loads(capsys.readouterr().out)
        assert said[beam]["beam"] == int(beam) and said[beam]["sharpness"] in SHARPNESSES
    assert cli.main(["evaluate", "paths", "--model", str(saved)]) == 0
    ours = json.loads(capsys.readouterr().out)
    assert ours["beam"] is ours["sharpness"] is None and ours["MRR"] == pytest.approx(
        said["1"]["MRR"], abs=1e-3
    )
    arguments = ["--model", str(saved), "--top", "2", "--beam", "3"]
    assert cli.main(["predict", "paths", "e0", "next,skip", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("  next -> e1  ") and not lines[1].endswith("known)")
    for line in lines[2:4]:  # what else is followed, below
        assert line.startswith("          e") and line.endswith("  (no such path is known)")
    assert lines[4].startswith("  skip -> ? (1 known)") and "e6  known" in lines[5]


def test_the_sharpness_of_training_is_kept(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For its own beam nothing is chosen again; nobody would choose 7."""
    model, settings = load_model(saved, Paths())
    assert isinstance(settings, PathSettings)
    path, own = tmp_path / "m.safetensors", str(settings.beam)
    save_model(path, Paths(), settings, model, 0.5, {SHARPNESS: 7.0})
    for beam, chosen in ((own, (7.0,)), ("2", SHARPNESSES), ("1", (1.0,))):
        assert cli.main(["evaluate", "paths", "--model", str(path), "--beam", beam]) == 0
        said = capsys.readouterr()
        assert json.loads(said.out)["sharpness"] in chosen
        assert ("Choosing the sharpness" in said.err) == (beam == "2")

    def predicted(model: Path, *arguments: str) -> str:
        query = ["e0", "next,skip", "--model", str(model), "--beam", "2", *arguments]
        assert cli.main(["predict", "paths", *query]) == 0
        return capsys.readouterr().out

    as_trained, flat = predicted(path), predicted(path, "--sharpness", "1")
    assert as_trained == predicted(path, "--sharpness", "7") != flat
    assert predicted(saved) == flat, "of a model that says nothing of it"
    one = ("--beam", "1")
    assert predicted(path, *one) == predicted(path, *one, "--sharpness", "1"), "as evaluate has it"
    back = (*one, "--back", "0.5")  # by the steps that were tested at the end of training
    assert predicted(path, *back) == predicted(path, *back, "--sharpness", "7")
    assert cli.main(["evaluate", "paths", "--model", str(path), *back]) == 0
    assert json.loads(capsys.readouterr().out)["sharpness"] == 7
    save_model(path, Paths(), settings, model, 0.5, {SHARPNESS: math.nan})
    assert cli.main(["evaluate", "paths", "--model", str(path), "--beam", own]) == 1
    assert "use a finite number above 0" in capsys.readouterr().err


def test_predict_and_evaluate_looking_back(
    saved: Path, ring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, settings = load_model(saved, Paths())
    assert isinstance(settings, PathSettings)
    asked = load(str(ring)).examinations("all", "test")["test"]
    arguments = ["--model", str(saved), "--beam", "3", "--back", "0.5"]
    for more in ([], ["--sharpness", "3"]):
        assert cli.main(["evaluate", "paths", *arguments, *more]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["back"] == 0.5 and said["sharpness"] in ((3.0,) if more else SHARPNESSES)
        expected = evaluate(by_steps(step(model, said["sharpness"], 0.5), 3), asked).averages
        assert said["MRR"] == pytest.approx(expected["MRR"], abs=1e-5)
    assert cli.main(["predict", "paths", "e0", "next,skip", *arguments, "--top", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("  next -> e1  ") and lines[-1].endswith("e6  known")
    path = tmp_path / "m.safetensors"
    save_model(path, Paths(), settings, model, 0.5, {SHARPNESS: 2.0, WAY_BACK: 0.25})
    best = ["evaluate", "paths", "--beam", "1", "--back", "best", "--model"]
    assert cli.main([*best, str(path)]) == 0
    said = json.loads(capsys.readouterr().out)
    expected = evaluate(by_steps(step(model, 2.0, 0.25), 1), asked).averages
    assert said["back"] == 0.25 and said["MRR"] == pytest.approx(expected["MRR"], abs=1e-5)
    assert cli.main([*best, str(saved)]) == 1
    assert "chose no weight of the way back; give a number." in capsys.readouterr().err
    save_model(path, Paths(), settings, model, 0.5, {WAY_BACK: math.nan})
    assert cli.main([*best, str(path)]) == 1 and "0 to 1" in capsys.readouterr().err
    other = replace(settings, model="rnn")
    save_model(path, Paths(), other, Paths().model(other), 0.5)
    for command in (["evaluate", "paths"], ["predict", "paths", "e0", "next"]):
        assert cli.main([*command, "--model", str(path), "--beam", "2", "--back", "0.5"]) == 1
        assert "this model knows no way back; leave --back out." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--back", "0.5"], "back=0.5 is for a beam; use it with --beam."),
        (["--back", "best"], "back=best is for a beam; use it with --beam."),
        (["--beam", "2", "--back", "2"], "back=2, but the weight of the way back is a number"),
        (["--beam", "2", "--back", "far"], "a number from 0 to 1, or best."),
    ],
)
def test_ways_back_without_sense_are_refused(
    arguments: list[str], complaint: str, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", "paths", "--model", str(saved), *arguments]) == 1
    assert complaint in capsys.readouterr().err


def test_training_keeps_what_it_read_out(ring: Path, tmp_path: Path) -> None:
    settings = settings_for(ring, epochs=1, evaluate_every=1)
    job = Job(settings, tmp_path / "record.json", tmp_path / "model.safetensors")
    list(perform(Paths(), [job], tmp_path / "work"))
    found, (record, model) = readout_of(tmp_path), (job.record, job.model)
    assert model is not None and SHARPNESS in found
    assert found == pytest.approx(json.loads(record.read_text())["readout"], abs=1e-4)


def test_what_takes_long_is_said_once(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(path_data, "_MANY", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for said in ("Finding all answers of 120 queries: a minute or so, once.\n", ""):
        assert cli.main(["evaluate", "paths", "--model", str(saved)]) == 0
        assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("entity", "path", "complaint"),
    [
        ("e99", "next", "unknown entity 'e99'; did you mean"),
        ("e0", "nxt", "unknown relation 'nxt'; did you mean 'next'?"),
        ("e0", "next,**skp", "did you mean '**skip'?"),
        ("e0", "", "unknown relation ''"),
    ],
)
def test_unknown_names_are_told_the_closest(
    entity: str, path: str, complaint: str, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["predict", "paths", entity, path, "--model", str(saved)]) != 0
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1


@pytest.mark.parametrize("new", ["a7", "e7\ne99\tnext\te7"])
def test_a_model_is_not_used_with_other_names(new: str, tmp_path: Path) -> None:
    """As many in another order, or one more: rows would be vectors of other entities."""
    write_ring(tmp_path, ENTITIES, STEPS)
    settings = settings_for(tmp_path)
    save_model(tmp_path / "m.safetensors", Paths(), settings, Paths().model(settings), 0.5)
    load_model(tmp_path / "m.safetensors", Paths())
    for split in ("train", "valid", "test"):
        file = tmp_path / f"{split}.txt"
        file.write_text(re.sub(r"\be7$", new, file.read_text(), flags=re.MULTILINE))
        file.write_text(re.sub(r"^e7\b", new.split()[0], file.read_text(), flags=re.MULTILINE))
    entities = Paths().graph(str(tmp_path)).entities
    assert len(entities) == (ENTITIES if new == "a7" else ENTITIES + 1)
    with pytest.raises(ModelError, match="had other names than now; bring those data back"):
        load_model(tmp_path / "m.safetensors", Paths())


def test_lengths_that_have_no_training_paths(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_ring(tmp_path, ENTITIES, STEPS)
    (tmp_path / "paths").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / "paths" / f"{split}.txt").write_text("e0\tnext,next\te2\n")
    with pytest.raises(DataError, match=r"no training paths of up to 1 relations .* of 2 to 2"):
        Paths().data(settings_for(tmp_path, length=1))
    with caplog.at_level("INFO"):
        assert Paths().data(settings_for(tmp_path, length=4)).sizes("train") == [1]
    assert "has training paths of up to 2 relations" in caplog.text


def test_queries_without_competitors_are_an_error(tmp_path: Path) -> None:
    """Who knows whom: what everybody knows has no competitors in its range, and others have."""
    (tmp_path / "paths").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("x\tknows\ty\nz\tknows\ty\n")
        (tmp_path / "paths" / f"{split}.txt").write_text("x\tknows\ty\n")
    settings = settings_for(tmp_path, length=1)
    with pytest.raises(DataError, match="no query of validation has competitors; use --protocol"):
        Paths().data(replace(settings, protocol="range", choose_by="MQ"))
    assert Paths().data(settings).size("test") == 2


def test_held_out_queries_are_not_trained_on_backwards(tmp_path: Path) -> None:
    """Files may have a training path whose reverse is a query."""
    write_ring(tmp_path, ENTITIES, STEPS)
    (tmp_path / "paths").mkdir()
    lines = {
        "train": ["e0\tnext,next\te2", "e1\tnext,next\te3", "e2\tskip,**skip\te2"],
        "valid": ["e3\t**next,**next\te1"],
        "test": ["e4\tskip,skip\te2", "e2\tskip,**skip\te2"],  # the last: in both files
    }
    for split, some in lines.items():
        (tmp_path / "paths" / f"{split}.txt").write_text("\n".join(some) + "\n")
    base = settings_for(tmp_path, length=2, protocol="range", choose_by="MQ")
    trained = {
        (way, protocol): Paths()
        .data(replace(base, backwards=way, protocol=protocol, choose_by="H@10"))
        .size("train")
        for way in ("triples", "paths")
        for protocol in ("range", "all")
    }
    assert trained == {
        ("triples", "range"): 3, ("triples", "all"): 2, ("paths", "range"): 2, ("paths", "all"): 2
    }  # fmt: skip
    other = shutil.copytree(tmp_path, tmp_path / "other")
    (other / "paths" / "train.txt").write_text("e1\tnext\te2\ne1\tnext,next\te3\n")
    left = Paths().data(replace(base, graph=str(other), backwards="paths"))
    assert left.sizes("train") == [1], "no empty table"


def test_mistakes_are_one_line(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, complaint in (
        (["predict", "paths", "e0", "next", "--model", str(tmp_path)], "holds no models"),
        (["predict", "paths", "e0", "next", "--model", str(saved), "--top", "0"], "at least 1"),
        (["predict", "paths", "e0", "next", "--model", str(saved), "--beam", "0"], "at least 1"),
        (["evaluate", "paths", "--model", str(saved), "--beam", "-2"], "at least 1"),
        (["evaluate", "paths", "--model", str(saved), "--sharpness", "2"], "with --beam"),
        (["train", "paths", "--graph", "wn12", "--out", str(tmp_path / "a")], "wn11"),
        (["train", "paths", "--choose-by", "MQ", "--out", str(tmp_path / "b")], "not measured"),
    ):
        assert cli.main(arguments) != 0
        error = capsys.readouterr().err
        assert complaint in error and error.count("\n") == 1, error


def test_rows_of_the_tables_can_be_trained_and_named(tmp_path: Path) -> None:
    """Long names are cut, and folders of different settings still differ."""
    task = get_task("paths")
    for name in ("paths", "paths-extrapolation", "paths-noise", "paths-small", "paths-search"):
        for row, wanted in jobs(get_table(name), tmp_path).items():
            assert all(len(job.record.parent.name) <= 217 for job in wanted), row
            assert all(isinstance(job.settings, task.settings) for job in wanted)
    folders = [
        job.record.parent
        for row in jobs(get_table("paths-small"), tmp_path).values()
        for job in row
    ]
    assert len(set(folders)) == 8
    shared = [
        {job.record for row in jobs(get_table(name), tmp_path).values() for job in row}
        for name in ("paths", "paths-extrapolation")
    ]
    assert len(shared[0] & shared[1]) == 12  # on all paths: three seeds of ours, in three ways


@pytest.mark.parametrize(
    "model", ["complex", "distmult", "bilinear", "transe", "rnn", "rop", "coke"]
)
def test_every_baseline_trains_in_the_engine(model: str, ring: Path) -> None:
    task = Paths()
    settings = settings_for(
        ring, model=model, epochs=4, evaluate_every=4, lr=0.01, layers=1, protocol="range",
        choose_by="MQ", backwards="paths", dropout=0.0,
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
    names += ["MQ, length 10", "sharpness of the beam", "MQ, beam", "MQ, looking back, length 10"]
    alone, grid = Paths().arranged(names)
    assert alone == ["MQ/argmax", "H@10/argmax", "sharpness of the beam"]
    assert list(grid) == ["MQ", "H@10", "MQ, length 1", "MQ, length 10", "H@10, length 1"]
    for row in grid.values():
        assert list(row) == ["argmax", "ties as the paper", "beam", "beam looking back"]
    assert list(grid["MQ"].values()) == ["MQ/argmax", "MQ, ties as the paper", "MQ, beam", ""]
    assert grid["MQ, length 10"]["beam looking back"] == "MQ, looking back, length 10"
    shown = {name for row in grid.values() for name in row.values()} | set(alone)
    assert shown == {*names, ""}, "nothing is lost"
    assert Paths().arranged(["MQ, by magic"]) == (["MQ, by magic"], {})
    assert list(Paths().arranged(["MQ, length 1"])[1]) == ["MQ, length 1"]
