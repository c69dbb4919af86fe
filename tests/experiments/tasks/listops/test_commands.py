"""evaluate, predict and data on ListOps."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dcgraph.experiments import cli
from dcgraph.experiments.tasks.listops import commands
from dcgraph.experiments.tasks.listops.commands import Commands
from dcgraph.experiments.tasks.listops.data import sets
from dcgraph.experiments.tasks.listops.data.expressions import (
    parse,
    text_of,
    write,
)
from dcgraph.experiments.tasks.listops.decoding import TreeDecoder
from dcgraph.experiments.tasks.listops.model.latent_tree import LatentTree
from dcgraph.experiments.tasks.listops.reading import read
from listops_models import (
    EXPRESSION,
    TASK,
    python_parents,
    python_value,
    small_data,
    some_expressions,
)
from pages import Page

Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """What a command says."""

    def run(*arguments: str | Path) -> str:
        assert cli.main([str(word) for word in arguments]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


@pytest.fixture
def complaint(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The one line that a command says instead of a result."""

    def complaint(*arguments: str | Path) -> str:
        assert cli.main([str(word) for word in arguments]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("dcgraph: ")
        return str(line)

    return complaint


@pytest.mark.parametrize("name", ["able", "random"])
def test_evaluate_a_file(name: str, models: dict[str, Path], tmp_path: Path, run: Run) -> None:
    texts = [text_of(expression) for expression in some_expressions(30)]
    (tmp_path / "own.txt").write_text("".join(f"{t}\t{python_value(t)}\n" for t in texts))
    said = json.loads(
        run("evaluate", "listops", "--model", models[name], "--data", tmp_path / "own.txt")
    )
    model, _ = Commands(TASK).load(models[name])
    assert isinstance(model, LatentTree)
    readings = read(TreeDecoder(model), [parse(text) for text in texts], 5)
    right, edges, inner = 0, [], []
    for text, reading in zip(texts, readings, strict=True):
        right += reading.answer == python_value(text)
        tokens, parents = text.split(), python_parents(text)
        for k in range(1, len(tokens)):
            if tokens[k] != "]":
                edges.append(reading.parents[k] == parents[k])
            if tokens[k].startswith("["):
                close = max(j for j in range(len(tokens)) if parents[j] == k)
                inside = " ".join(tokens[k : close + 1])
                inner.append(reading.values[-1][k] == python_value(inside))
    assert said == {
        "task": "listops",
        "model": str(models[name]),
        "data": str(tmp_path / "own.txt"),
        "rounds": 5,
        "decode": "argmax",
        "task accuracy": round(right / len(texts), 6),
        "expressions": len(texts),
        "edge precision": round(sum(edges) / len(edges), 6),
        "edges": len(edges),
        "intermediate accuracy": round(sum(inner) / len(inner), 6),
        "intermediate values": len(inner),
    }
    if name == "able":
        assert said["edge precision"] == 1 and said["task accuracy"] > 0.7


def test_evaluate_a_set_with_the_rounds_its_name_states(
    models: dict[str, Path], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = some_expressions(10, depths=(8,))
    monkeypatch.setattr(sets, "as_data", lambda seed: small_data(d8=deep))
    model = ("evaluate", "listops", "--model", models["able"])
    of_test, of_d8 = json.loads(run(*model)), json.loads(run(*model, "--set", "d8"))
    assert (of_test["data"], of_test["rounds"], of_test["expressions"]) == ("test", 5, 120)
    assert (of_d8["data"], of_d8["rounds"], of_d8["expressions"]) == ("d8", 8, 10)
    write(tmp_path / "d8.txt", deep)  # as `dcgraph data` names it
    as_file = json.loads(run(*model, "--data", tmp_path / "d8.txt"))
    assert as_file == {**of_d8, "data": str(tmp_path / "d8.txt")}
    fewer = json.loads(run(*model, "--set", "d8", "--rounds", "3", "--decode", "sample"))
    assert (fewer["rounds"], fewer["decode"]) == (3, "sample")


def test_evaluate_a_model_without_a_tree(models: dict[str, Path], tmp_path: Path, run: Run) -> None:
    write(tmp_path / "own.txt", [parse("[MAX 1 2 ]")])
    model = ("evaluate", "listops", "--model", models["flat"])
    said = json.loads(run(*model, "--data", tmp_path / "own.txt"))
    assert said["expressions"] == 1 and "edges" not in said and "edge precision" not in said


def test_evaluate_expressions_without_inner_operators(
    models: dict[str, Path], tmp_path: Path, run: Run
) -> None:
    write(tmp_path / "own.txt", [parse("[MAX 1 2 ]"), parse("[MIN 7 ]")])
    model = ("evaluate", "listops", "--model", models["able"])
    said = json.loads(run(*model, "--data", tmp_path / "own.txt"))
    assert said["edges"] == 3 and said["intermediate values"] == 0
    assert "intermediate accuracy" not in said


def test_evaluate_says_what_is_wrong(
    models: dict[str, Path],
    tmp_path: Path,
    complaint: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sets, "as_data", lambda seed: small_data())
    command = ("evaluate", "listops", "--model", models["able"])
    bad = tmp_path / "bad.txt"
    bad.write_text("[MAX 1 2 ]\t2\n[MAX 1 2\t2\n")
    assert f"{bad}, line 2: 1 bracket is not closed" in complaint(*command, "--data", bad)
    bad.write_text("[MAX 1 2 ]\t1\n")
    assert f"{bad}, line 1: the value is 1" in complaint(*command, "--data", bad)
    assert "No such file" in complaint(*command, "--data", tmp_path / "none.txt")
    assert "unknown set 'tset'; did you mean 'test'?" in complaint(*command, "--set", "tset")
    assert "exclude each other" in complaint(*command, "--set", "test", "--data", bad)
    assert "rounds=0, but 1 to 5,000 are possible" in complaint(*command, "--rounds", "0")


def test_an_expression_that_would_fill_the_memory_is_refused(
    models: dict[str, Path], tmp_path: Path, complaint: Callable[..., str]
) -> None:
    text = f"[MAX {'1 ' * 60_000}]"
    lines = tmp_path / "long.txt"
    lines.write_text(f"[MAX 1 2 ]\t2\n{text}\t1\n")
    limit = "60,002 tokens, but a model reads at most 10,000"
    able = ("--model", models["able"])
    assert f"expression 1: it has {limit}" in complaint("predict", "listops", text, *able)
    assert limit in complaint("predict", "listops", "--file", lines, *able)
    assert f"expression 2: it has {limit}" in complaint(
        "evaluate", "listops", "--data", lines, *able
    )
    rounds = complaint("evaluate", "listops", "--data", lines, *able, "--rounds", "1000000000")
    assert "rounds=1000000000, but 1 to 5,000 are possible" in rounds


def test_without_a_model_the_remedy_is_named(
    complaint: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "SHIPPED", "none.safetensors")
    for words in (["evaluate", "listops"], ["predict", "listops", EXPRESSION]):
        line = complaint(*words)
        assert "dcgraph train listops" in line and "--model" in line


def test_the_model_in_the_package_is_the_default(
    models: dict[str, Path], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "files", lambda package: models["able"].parent)
    monkeypatch.setattr(commands, "SHIPPED", "able.safetensors")
    monkeypatch.setattr(sets, "as_data", lambda seed: small_data())
    assert run("predict", "listops", EXPRESSION).startswith(EXPRESSION)
    assert json.loads(run("evaluate", "listops"))["model"] == "shipped"


def test_predict_shows_trees(models: dict[str, Path], run: Run) -> None:
    two = ("[MAX 2 9 [MIN 4 7] 0]", "[MED 3 1 ]")
    said = run("predict", "listops", *two, "--model", models["able"])
    first, second = said.rstrip("\n").split("\n\n")
    assert first.startswith(f"{EXPRESSION} = ") and len(first.splitlines()) == 8
    assert second.startswith("[MED 3 1 ] = ") and len(second.splitlines()) == 4


def test_a_deep_expression_has_as_many_rounds_as_its_chosen_tree(run: Run, tmp_path: Path) -> None:
    """Alone, among others and in lines, by the model in the package; a set has what it states."""
    deep = "[MAX 0 " * 8 + "9 " + "] " * 8
    shown = run("predict", "listops", EXPRESSION, deep, "--html", tmp_path / "page.html")
    assert shown.count("= 9  (right)") == 2
    said = Page((tmp_path / "page.html").read_text()).text
    assert "; 5 rounds." in said and "; 8 rounds." in said
    assert "(wrong, it is 9)" in run("predict", "listops", deep, "--rounds", "5")
    (tmp_path / "own.txt").write_text(f"{EXPRESSION}\t9\n{deep}\t9\n")
    lines = run("predict", "listops", "--file", tmp_path / "own.txt").splitlines()
    assert [line.split("\t")[1:] for line in lines] == [["9"], ["9"]]
    (tmp_path / "own.txt").rename(tmp_path / "d8.txt")
    measured = json.loads(run("evaluate", "listops", "--data", tmp_path / "d8.txt"))
    assert (measured["rounds"], measured["task accuracy"]) == (8, 1.0)


def fake_stdin(content: bytes) -> Any:
    return SimpleNamespace(buffer=io.BytesIO(content))


@pytest.mark.parametrize("source", ["file", "stdin", "stdin as file"])
def test_predict_answers_lines_in_their_order(
    source: str,
    models: dict[str, Path],
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "_AT_ONCE", 50)
    texts = [text_of(expression) for expression in some_expressions(30)]
    texts = texts[::3] + texts[1::3] + texts[2::3]
    lines = [text if k % 2 else f"{text}\tignored" for k, text in enumerate(texts)]
    content = "\ufeff" + "\r\n\n".join(lines)  # as other systems write it, no end of line
    (tmp_path / "lines.txt").write_bytes(content.encode())
    monkeypatch.setattr(sys, "stdin", fake_stdin(content.encode()))
    file = tmp_path / "lines.txt" if source == "file" else "-"
    where: list[str | Path] = ["-"] if source == "stdin" else ["--file", file]
    said = run("predict", "listops", *where, "--model", models["able"])
    model, _ = Commands(TASK).load(models["able"])
    assert isinstance(model, LatentTree)
    expected = []
    for text in texts:
        (reading,) = read(TreeDecoder(model), [parse(text)], 5)
        truth = python_value(text)
        mark = "" if reading.answer == truth else f"\t{truth}"
        expected.append(f"{text}\t{reading.answer}{mark}")
    assert said.splitlines() == expected
    assert 0 < sum(line.count("\t") == 2 for line in expected) < len(expected) / 2


def test_predict_answers_what_comes_before_a_malformed_line(
    models: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for last, reason in ((b"[MIN 3", "1 bracket is not closed"), (b"\xff\xfe", "not text")):
        monkeypatch.setattr(sys, "stdin", fake_stdin(b"[MAX 1 2 ]\n\n" + last + b"\n[MIN 1 2 ]\n"))
        assert cli.main(["predict", "listops", "-", "--model", str(models["able"])]) == 1
        shown = capsys.readouterr()
        assert shown.out.startswith("[MAX 1 2 ]\t") and shown.out.count("\n") == 1
        (line,) = shown.err.splitlines()
        assert f"stdin, line 3: {reason}" in line


def test_predict_says_what_is_wrong(
    models: dict[str, Path],
    tmp_path: Path,
    complaint: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = ("--model", models["able"])
    command = ("predict", "listops")
    assert "expression 2: 'x' is not a token" in complaint(*command, EXPRESSION, "[MAX x ]", *model)
    cut = complaint(*command, *EXPRESSION.split(), *model)
    assert "expression 1: '[MAX' is not a whole one" in cut and "quotes" in cut
    assert "--file" in complaint(*command, *model)
    assert "--file" in complaint(*command, EXPRESSION, "--file", tmp_path / "a", *model)
    assert "No such file" in complaint(*command, "--file", tmp_path / "none", *model)
    assert "rounds=-1" in complaint(*command, EXPRESSION, "--rounds", "-1", *model)
    assert "no tree to show" in complaint(*command, EXPRESSION, "--model", models["flat"])
    page = ("--html", tmp_path / "page.html")
    assert "--html draws" in complaint(*command, "-", *page, *model)
    monkeypatch.setattr(sys, "stdin", fake_stdin(b" \n"))
    assert "stdin has no expressions" in complaint(*command, "-", *model)
    assert not (tmp_path / "page.html").exists()


def test_predict_writes_the_page(models: dict[str, Path], tmp_path: Path, run: Run) -> None:
    path = tmp_path / "new" / "page.html"
    said = run("predict", "listops", EXPRESSION, "--model", models["able"], "--html", path)
    assert str(path) in said and EXPRESSION in Page(path.read_text()).text


def test_data_writes_all_sets(
    tmp_path: Path, run: Run, complaint: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sets, "SPLITS", {"train": 6, "validation": 2, "test": 3})
    monkeypatch.setattr(sets, "_DEEPER_SIZE", 4)
    monkeypatch.setattr(sets, "generate_critical", partial(sets.generate_critical, size=2))
    said = run("data", "listops", "--out", tmp_path / "data").splitlines()
    assert "d10-long.txt: 4 expressions" in said and f"in {tmp_path / 'data'}" in said[-1]
    files = sorted((tmp_path / "data").iterdir())
    assert len(files) == 27 == len(said) - 1
    for path in files:
        for line in path.read_text().splitlines():
            text, value = line.split("\t")
            assert python_value(text) == int(value)
    assert said[-1].startswith(f"{5 * 11 + 4 * 4 + 8 * 2} in all")
    other = run("data", "listops", "--out", tmp_path / "other", "--seed", "1")
    assert other.count("\n") == 28
    assert (tmp_path / "other" / "d8.txt").read_text() != (tmp_path / "data" / "d8.txt").read_text()
    assert "seed=-1" in complaint("data", "listops", "--out", tmp_path, "--seed", "-1")
    (tmp_path / "file").touch()
    assert "file" in complaint("data", "listops", "--out", tmp_path / "file")
