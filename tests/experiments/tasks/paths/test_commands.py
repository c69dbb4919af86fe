"""``dcgraph predict`` and ``evaluate`` for path queries."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dcgraph.experiments import cli
from dcgraph.experiments.engine import Outcome
from dcgraph.experiments.engine.errors import DataError, ModelError
from dcgraph.experiments.engine.models import load_model, save_model
from dcgraph.experiments.tasks.paths import commands, evaluation
from dcgraph.experiments.tasks.paths import data as path_data
from dcgraph.experiments.tasks.paths.commands import Commands
from dcgraph.experiments.tasks.paths.data import PathData, load
from dcgraph.experiments.tasks.paths.decoding import INVERSE_TEMPERATURES, beam_scores, step_scores
from dcgraph.experiments.tasks.paths.evaluation import (
    EvaluationSet,
    Protocol,
    evaluate,
    evaluation_sets,
)
from dcgraph.experiments.tasks.paths.settings import (
    BIDIRECTIONAL_WEIGHT,
    INVERSE_TEMPERATURE,
)
from dcgraph.experiments.tasks.paths.task import Paths
from ring_of_paths import ENTITIES, STEPS, settings_for
from small_graphs import random_graph, write_ring


@pytest.fixture(scope="module")
def saved(trained: tuple[Paths, Outcome], tmp_path_factory: pytest.TempPathFactory) -> Path:
    task, outcome = trained
    best = max((0, 1), key=outcome.score)
    path = tmp_path_factory.mktemp("models") / "best.safetensors"
    save_model(path, task, outcome.replicas[best], outcome.model(best), outcome.score(best))
    return path


def test_predict_and_evaluate(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = "next,next,skip,**next"
    assert cli.main(["predict", "paths", "e0", path, "--model", str(saved), "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["e0: next, next, skip, **next", "", "On the way, the best 3:", "  next"]
    assert lines[4].split() == [*lines[4].split()[:-3], "e1", "in", "training"]
    assert "Answers (12 candidates; known: 1 in training):" in lines
    best = lines.index(next(line for line in lines if line.startswith("     1")))
    assert lines[best].split()[-3:] == ["e6", "in", "training"]
    assert lines[best + 1].strip() == "by e1, e2, e7" and lines[best + 2].split()[-1] == "new"
    assert "guess: " in lines[best + 3] and max(map(len, lines)) <= 80
    assert cli.main(["evaluate", "paths", "--model", str(saved), "--ties", "pessimistic"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["ties"] == "pessimistic" and said["protocol"] == "all" and said["MRR"] > 0.9
    assert list(said["by length"]) == [str(hops) for hops in range(1, 11)]
    assert "ties: pessimistic" in said["in words"]
    arguments = ["--split", "validation", "--protocol", "range"]
    assert cli.main(["evaluate", "paths", "--model", str(saved), *arguments]) == 0
    assert {"MQ", "H@10"} <= set(json.loads(capsys.readouterr().out))


def test_predict_and_evaluate_by_beam(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for beam in ("1", "3"):
        assert cli.main(["evaluate", "paths", "--model", str(saved), "--beam", beam]) == 0
        said[beam] = json.loads(capsys.readouterr().out)
        assert (
            said[beam]["beam"] == int(beam)
            and said[beam][INVERSE_TEMPERATURE] in INVERSE_TEMPERATURES
        )
    assert cli.main(["evaluate", "paths", "--model", str(saved)]) == 0
    ours = json.loads(capsys.readouterr().out)
    assert ours["beam"] is ours[INVERSE_TEMPERATURE] is None and ours["MRR"] == pytest.approx(
        said["1"]["MRR"], abs=1e-3
    )
    arguments = ["--model", str(saved), "--top", "2", "--beam", "3"]
    assert cli.main(["predict", "paths", "e0", "next,skip", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines[4:7]] == ["training", "new", "new"]
    assert lines[4].split()[-3] == "e1"


def test_the_calibrated_inverse_temperature_is_kept(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For its own beam nothing is chosen again; nobody would choose 7."""
    model, settings = load_model(saved, Paths())
    path, own = tmp_path / "m.safetensors", str(settings.beam)
    save_model(path, Paths(), settings, model, 0.5, {INVERSE_TEMPERATURE: 7.0})
    for beam, chosen in ((own, (7.0,)), ("2", INVERSE_TEMPERATURES), ("1", (1.0,))):
        assert cli.main(["evaluate", "paths", "--model", str(path), "--beam", beam]) == 0
        said = capsys.readouterr()
        assert json.loads(said.out)[INVERSE_TEMPERATURE] in chosen
        assert ("Choosing the inverse temperature" in said.err) == (beam == "2")

    def predicted(model: Path, *arguments: str) -> str:
        query = ["e0", "next,skip", "--model", str(model), "--json", *arguments]
        query = query if "--beam" in arguments else [*query, "--beam", "2"]
        assert cli.main(["predict", "paths", *query]) == 0
        return capsys.readouterr().out

    as_trained, flat = predicted(path), predicted(path, "--inverse-temperature", "1")
    assert as_trained == predicted(path, "--inverse-temperature", "7") != flat
    assert predicted(saved) == flat, "of a model that says nothing of it"
    one = ("--beam", "1")
    assert predicted(path, *one) == predicted(path, *one, "--inverse-temperature", "7")
    both = (*one, "--bidirectional", "0.5")  # by the steps that were tested at the end of training
    assert predicted(path, *both) == predicted(path, *both, "--inverse-temperature", "7")
    assert cli.main(["evaluate", "paths", "--model", str(path), *both]) == 0
    assert json.loads(capsys.readouterr().out)[INVERSE_TEMPERATURE] == 7
    save_model(path, Paths(), settings, model, 0.5, {INVERSE_TEMPERATURE: math.nan})
    assert cli.main(["evaluate", "paths", "--model", str(path), "--beam", own]) == 1
    assert "has a calibration this dcgraph cannot read" in capsys.readouterr().err


def test_another_beam_is_calibrated_on_the_validation_split(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, chosen_on = [], []

    def sets(data: PathData, protocol: Protocol, *splits: str, **options: Any) -> Any:
        asked.append(splits)
        return evaluation_sets(data, protocol, *splits, **options)

    def chosen(model: Any, evaluation_set: EvaluationSet, *given: Any) -> float:
        chosen_on.append({table["path"].shape[1] for table in evaluation_set.tables})
        return 2.0

    monkeypatch.setattr(commands, "evaluation_sets", sets)
    monkeypatch.setattr(commands, "calibrate_inverse_temperature", chosen)
    assert cli.main(["evaluate", "paths", "--model", str(saved), "--beam", "2"]) == 0
    assert json.loads(capsys.readouterr().out)[INVERSE_TEMPERATURE] == 2.0
    assert asked == [("test",), ("validation",)]
    assert chosen_on == [{1, 2, 3}], "of the lengths by which the weights were selected"


def test_predict_and_evaluate_bidirectionally(
    saved: Path, ring: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, settings = load_model(saved, Paths())
    asked = evaluation_sets(load(str(ring)), "all", "test")["test"]
    arguments = ["--model", str(saved), "--beam", "3", "--bidirectional", "0.5"]
    for more in ([], ["--inverse-temperature", "3"]):
        assert cli.main(["evaluate", "paths", *arguments, *more]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said[BIDIRECTIONAL_WEIGHT] == 0.5 and said[INVERSE_TEMPERATURE] in (
            (3.0,) if more else INVERSE_TEMPERATURES
        )
        expected = evaluate(
            beam_scores(step_scores(model, said[INVERSE_TEMPERATURE], 0.5), 3), asked
        ).averages
        assert said["MRR"] == pytest.approx(expected["MRR"], abs=1e-5)
    assert cli.main(["predict", "paths", "e0", "next,skip", *arguments, "--top", "1"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^ +1 .* e6 +in training$", out, flags=re.MULTILINE)
    path = tmp_path / "m.safetensors"
    save_model(
        path, Paths(), settings, model, 0.5, {INVERSE_TEMPERATURE: 2.0, BIDIRECTIONAL_WEIGHT: 0.25}
    )
    best = ["evaluate", "paths", "--beam", "1", "--bidirectional", "best", "--model"]
    assert cli.main([*best, str(path)]) == 0
    said = json.loads(capsys.readouterr().out)
    expected = evaluate(beam_scores(step_scores(model, 2.0, 0.25), 1), asked).averages
    assert said[BIDIRECTIONAL_WEIGHT] == 0.25 and said["MRR"] == pytest.approx(
        expected["MRR"], abs=1e-5
    )
    assert cli.main([*best, str(saved)]) == 1
    assert "has no calibrated bidirectional weight; give a number." in capsys.readouterr().err
    save_model(path, Paths(), settings, model, 0.5, {BIDIRECTIONAL_WEIGHT: math.nan})
    assert cli.main([*best, str(path)]) == 1
    assert "has a calibration this dcgraph cannot read" in capsys.readouterr().err
    other = replace(settings, model="rnn")
    save_model(path, Paths(), other, Paths().model(other), 0.5)
    both = ["--model", str(path), "--beam", "2", "--bidirectional", "0.5"]
    for command in (["evaluate", "paths"], ["predict", "paths", "e0", "next"]):
        assert cli.main([*command, *both]) == 1
        said = capsys.readouterr().err
        assert "scoring is not implemented for PathRNN; leave --bidirectional out." in said


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--bidirectional", "0.5"], "bidirectional=0.5 is for a beam search; use it with --beam."),
        (
            ["--bidirectional", "best"],
            "bidirectional=best is for a beam search; use it with --beam.",
        ),
        (["--beam", "2", "--bidirectional", "2"], "bidirectional=2, but the weight is a number"),
        (["--beam", "2", "--bidirectional", "far"], "a number from 0 to 1, or best."),
    ],
)
def test_weights_without_sense_are_refused(
    arguments: list[str], complaint: str, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", "paths", "--model", str(saved), *arguments]) == 1
    assert complaint in capsys.readouterr().err


def test_what_takes_long_is_said_once(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluation, "_MANY", 1)
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
def test_unknown_names_are_answered_by_the_closest(
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
    with pytest.raises(
        ModelError, match="had other names or triples than now; bring those data back"
    ):
        load_model(tmp_path / "m.safetensors", Paths())


def test_mistakes_are_one_line(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, complaint in (
        (["predict", "paths", "e0", "next", "--model", str(tmp_path)], "holds no models"),
        (["predict", "paths", "e0", "next", "--model", str(saved), "--top", "0"], "at least 1"),
        (["predict", "paths", "e0", "next", "--model", str(saved), "--beam", "0"], "at least 1"),
        (["evaluate", "paths", "--model", str(saved), "--beam", "-2"], "at least 1"),
        (["evaluate", "paths", "--model", str(saved), "--inverse-temperature", "2"], "with --beam"),
        (["train", "paths", "--graph", "wn12", "--out", str(tmp_path / "a")], "wn11"),
        (["train", "paths", "--monitor", "MQ", "--out", str(tmp_path / "b")], "not measured"),
    ):
        assert cli.main(arguments) != 0
        error = capsys.readouterr().err
        assert complaint in error and error.count("\n") == 1, error


def test_data_writes_what_can_be_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data_command = Commands(Paths).data
    source, out = tmp_path / "graph", tmp_path / "out"
    path_data.write(source, PathData(random_graph(20, 3, 90, seed=0), {}))
    said = data_command(graph=str(source), out=out, seed=3)
    assert load(str(out)).fingerprint == load(str(source), seed=3).fingerprint
    assert "paths/test.txt.gz: 150 lines" in said and said.endswith(f"path queries, in {out}.")
    options = ["--graph", str(source), "--out", str(tmp_path / "b"), "--seed", "3"]
    assert cli.main(["data", "paths", *options]) == 0
    assert capsys.readouterr().out == said.replace(str(out), str(tmp_path / "b")) + "\n"
    assert data_command(graph=str(out), out=out, seed=3) == said, "in its place"
    (out / "paths" / "test.npz").write_text("would be read in place of test.txt.gz")
    with pytest.raises(DataError, match=r"holds test.npz already; choose an empty folder\.$"):
        data_command(graph=str(source), out=out)
    with pytest.raises(DataError, match="seed=-1"):
        data_command(graph=str(source), out=out, seed=-1)
