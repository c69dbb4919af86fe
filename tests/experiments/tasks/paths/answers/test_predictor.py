"""``dcgraph predict paths``: one query, many queries, the model in the package."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from dcgraph.experiments import cli
from dcgraph.experiments.engine.models import calibration_of, carried_by, load_model, save_model
from dcgraph.experiments.tasks.paths import commands
from dcgraph.experiments.tasks.paths.answers import predictor
from dcgraph.experiments.tasks.paths.answers.calibration import Calibration
from dcgraph.experiments.tasks.paths.data.graph import INVERSE
from dcgraph.experiments.tasks.paths.data.packing import unpack
from dcgraph.experiments.tasks.paths.settings import INVERSE_TEMPERATURE
from dcgraph.experiments.tasks.paths.task import Paths
from ring_of_paths import settings_for, write_circle

SHIPPED = Path(commands.__file__).parent / commands.SHIPPED
NUMBERS = Calibration({1: (1.0, 0.5, 0.2), 2: (0.8, 0.5, 0.1)}).as_numbers()


def saved_in(folder: Path, graph: Path) -> Path:
    """A model that is not trained."""
    torch.manual_seed(0)
    settings, path = settings_for(graph), folder / "m.safetensors"
    save_model(path, Paths(), settings, Paths().model(settings).eval(), 0.5,
               {INVERSE_TEMPERATURE: 1.5} | NUMBERS)  # fmt: skip
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Whose data are gone."""
    (tmp_path / "ring").mkdir()
    graph = write_circle(tmp_path / "ring")
    path = saved_in(tmp_path, graph)
    shutil.rmtree(graph)
    return path


def predicted(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    assert cli.main(["predict", "paths", *words]) == code
    said = capsys.readouterr()
    return said.out, said.err


def test_a_model_carries_its_graph(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = predicted(capsys, "e0", "next,skip", "--model", str(model), "--json")
    found = json.loads(out)
    assert found["calibrated"] and found["known"] == {"training": 1, "validation": 0, "test": 0}
    (known,) = [one for one in found["answers"] if one["mark"] == "training"]
    assert known["entity"] == "e6" and known["probability"] is None
    assert [step["target"] for step in known["evidence"]] == ["e1", "e6"]
    assert all(0 < a["probability"] < 1 for a in found["answers"] if a["mark"] == "new")


def test_only_new_answers_are_shown(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = ["e0", "next,skip", "--model", str(model), "--new"]
    out, _ = predicted(capsys, *query)
    assert "New answers (12 candidates; known: 1 in training):" in out
    found = json.loads(predicted(capsys, *query, "--json")[0])
    assert {one["mark"] for one in found["answers"]} == {"new"} and len(found["answers"]) == 10
    assert found["known"]["training"] == 1


def test_equal_runs_give_equal_files(tmp_path: Path) -> None:
    (tmp_path / "ring").mkdir()
    graph = write_circle(tmp_path / "ring")
    first = saved_in(tmp_path, graph).read_bytes()
    assert saved_in(tmp_path, graph).read_bytes() == first


def test_other_options_than_those_of_training_are_not_calibrated(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = ["e0", "next,skip", "--model", str(model)]
    same = ["--beam", "16", "--inverse-temperature", "1.5", "--candidates", "auto"]
    assert predicted(capsys, *query, *same) == predicted(capsys, *query)
    for other in (
        ["--beam", "3"],
        ["--inverse-temperature", "2"],
        ["--candidates", "kind"],
        ["--bidirectional", "0.5"],
    ):
        out, _ = predicted(capsys, *query, *other, "--json")
        found = json.loads(out)
        assert not found["calibrated"]
        assert {one["probability"] for one in found["answers"]} == {None}
        assert "share: " in predicted(capsys, *query, *other)[0]


def test_many_queries_and_bad_lines(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers are those of single queries, in the order of the lines; bad lines lose no others."""
    lines = [
        b"e0\tnext,skip\te6",  # as in a file of path queries
        b"e1\tnext",
        b"",
        b"e99\tnext",
        b"no tab",
        b"e2\tnxt,skip",
        b"\xff\xfe\tnext",
        b"e2\t" + b",".join([b"next"] * 101),
        b"e3\t**skip\r",
    ]
    file = tmp_path / "queries.txt"
    file.write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines) + b"\n")
    common = ["--model", str(model), "--top", "3"]
    monkeypatch.setattr(predictor, "_LINES", 2)
    out, err = predicted(capsys, *common, "--queries", str(file), "--json", code=1)
    found = {one["line"]: one for one in map(json.loads, out.splitlines())}
    assert list(found) == [1, 2, 4, 5, 6, 7, 8, 9]
    assert err == "dcgraph: 5 of 8 queries could not be read; see above.\n"
    for line, source, path in ((1, "e0", "next,skip"), (2, "e1", "next"), (9, "e3", "**skip")):
        single, _ = predicted(capsys, source, path, *common, "--json")
        assert found[line] == {"line": line} | json.loads(single)
    for line, complaint in (
        (4, "unknown entity 'e99'; did you mean"),
        (5, "no tab; write a source, a tab"),
        (6, "unknown relation 'nxt'; did you mean 'next'?"),
        (7, "not text in UTF-8."),
        (8, "a path of 101 relations, but there are 100 at most."),
    ):
        assert set(found[line]) == {"line", "error"} and complaint in found[line]["error"]

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(file.read_bytes())))
    out, err = predicted(capsys, *common, "--queries", "-", code=1)
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[:3] for row in rows[:4]] == [
        ["e0", "next,skip", "1"], ["e0", "next,skip", "2"], ["e0", "next,skip", "3"],
        ["e1", "next", "1"],
    ]  # fmt: skip
    assert [row[3] for row in rows[:3]] == [one["entity"] for one in found[1]["answers"]]
    assert (
        err.splitlines()[1] == "line 5: no tab; write a source, a tab and relations between commas."
    )
    assert len(err.splitlines()) == 6


def test_of_many_bad_lines_the_first_have_hints(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictor, "_GUESSES", 2)
    file = tmp_path / "queries.txt"
    file.write_text("e99\tnext\n" * 3)
    _, err = predicted(capsys, "--model", str(model), "--queries", str(file), code=1)
    assert ["did you mean" in line for line in err.splitlines()] == [True, True, False, False]
    file.write_text("\n")
    _, err = predicted(capsys, "--model", str(model), "--queries", str(file), code=1)
    assert "there are no queries" in err
    _, err = predicted(capsys, "--model", str(model), "--queries", str(tmp_path / "none"), code=1)
    assert "cannot read" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "complaint", "code"),
    [
        ([], "name a source and a path", 1),
        (["e0", "next", "--queries", "x"], "name a source and a path", 1),
        (["e0", "next", "--top", "0"], "at least 1", 1),
        (["e0", "next", "--beam", "0"], "at least 1", 1),
        (["e0", "next", "--inverse-temperature", "0"], "finite number above 0", 1),
        (["e0", "next", "--bidirectional", "2"], "from 0 to 1", 1),
        (["e0", "next", "--candidates", "town"], "invalid choice", 2),
        (["e0", "next", "more"], "unknown argument 'more'", 2),
        (["e0", ""], "unknown relation ''", 1),
        (["e0", "next,"], "unknown relation ''", 1),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], complaint: str, code: int, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = predicted(capsys, *words, "--model", str(model), code=code)
    assert not out and complaint in err and err.count("\n") == 1


def test_a_source_shows_its_relations(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = predicted(capsys, "e0", "--model", str(model))
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["next", "e1"], ["skip", "e5"], [f"{INVERSE}next", "e11"], [f"{INVERSE}skip", "e7"]
    ]  # fmt: skip


def test_damaged_files_are_one_line(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with safe_open(model, framework="pt") as file:
        notes = file.metadata()
        weights: dict[str, Any] = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
    path = tmp_path / "damaged.safetensors"
    carried = weights["dcgraph.carried"]
    for changes, other, complaint in (
        ({"dcgraph.carried": carried[:-20]}, {}, "is damaged: its graph"),
        ({"dcgraph.carried": carried.flip(0)}, {}, "is damaged: its graph"),
        ({"dcgraph.carried": carried.float()}, {}, "carries what this dcgraph cannot read"),
        ({}, {"vocabulary": "0"}, "other names"),
        ({}, {"calibration": '{"answers of length 1, share": 1}'}, "calibration this dcgraph"),
        ({}, {"calibration": '{"inverse temperature": NaN}'}, "calibration this dcgraph"),
        ({}, {"settings": "[]"}, "settings this dcgraph cannot read"),
    ):
        save_file(weights | changes, path, notes | other)
        _, err = predicted(capsys, "e0", "next", "--model", str(path), code=1)
        assert complaint in err and err.count("\n") == 1, err


def test_models_that_carry_no_graph_need_the_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they were saved before."""
    (tmp_path / "ring").mkdir()
    graph = write_circle(tmp_path / "ring")
    model = saved_in(tmp_path, graph)
    with safe_open(model, framework="pt") as file:
        notes = file.metadata() | {"format": "dcgraph model 2"}
        weights = {k: file.get_tensor(k) for k in file.keys() if "carried" not in k}  # noqa: SIM118
    old = tmp_path / "old.safetensors"
    save_file(weights, old, notes)
    query = ["e0", "next,skip"]
    assert predicted(capsys, *query, "--model", str(old)) == predicted(
        capsys, *query, "--model", str(model)
    )
    shutil.rmtree(graph)
    _, err = predicted(capsys, *query, "--model", str(old), code=1)
    assert "here nor a known graph" in err


# The model in the package


def test_the_model_in_the_package_is_small_and_whole() -> None:
    assert SHIPPED.stat().st_size < 100_000
    graph = unpack(carried_by(SHIPPED))
    assert len(graph.entities) == 135 and len(graph.relations) == 46
    assert [len(triples) for triples in graph.triples.values()] == [5216, 652, 661]
    model, settings = load_model(SHIPPED, Paths(graphs={"umls": graph}))
    assert settings.graph == "umls" and settings.seed == 0
    assert len(calibration_of(SHIPPED)) == 2 + 3 * 5
    assert all(p.dtype is torch.float32 for p in model.parameters())


def test_it_answers_without_data_and_without_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DCGRAPH_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    out, err = predicted(capsys, "hormone", "disrupts,**disrupts,result_of")
    assert not err and out.startswith("hormone: disrupts, **disrupts, result_of\n")
    assert max(map(len, out.splitlines())) <= 80
    assert not list(tmp_path.iterdir()), "nothing is read, nothing is written"
    _, err = predicted(capsys, "hormon", "disrupts", code=1)
    assert err == "dcgraph: unknown entity 'hormon'; did you mean 'hormone' or 'human'?\n"


def test_a_model_of_one_file_answers_where_the_file_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ring").mkdir()
    file = tmp_path / "triples.tsv"
    file.write_bytes((write_circle(tmp_path / "ring") / "train.txt").read_bytes())
    model = saved_in(tmp_path, file)
    query = ["e0", "next", "--model", str(model)]
    here = predicted(capsys, *query)
    file.unlink()
    assert predicted(capsys, *query) == here
