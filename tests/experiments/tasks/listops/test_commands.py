"""evaluate, predict and data on ListOps, and what the page of a run shows of it."""

from __future__ import annotations

import io
import json
import re
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from dcgraph.experiments import cli
from dcgraph.experiments.engine.models import save_model
from dcgraph.experiments.engine.panels import Examples, Grid
from dcgraph.experiments.engine.task import Data
from dcgraph.experiments.tasks.listops import commands
from dcgraph.experiments.tasks.listops.commands import Commands
from dcgraph.experiments.tasks.listops.data import sets
from dcgraph.experiments.tasks.listops.data.expressions import (
    CLOSE,
    Expression,
    parse,
    text_of,
    tree_of,
    write,
)
from dcgraph.experiments.tasks.listops.data.sets import tables_of
from dcgraph.experiments.tasks.listops.decoding import Decoder
from dcgraph.experiments.tasks.listops.model.edges import Counters
from dcgraph.experiments.tasks.listops.model.latent_tree import LatentTree
from dcgraph.experiments.tasks.listops.reading import Reading, drawing, heights, read, write_page
from listops_models import ABLE, RANDOM, TASK, able_model, some_expressions
from pages import Page, in_browser, measured_in_browser

EXPRESSION = "[MAX 2 9 [MIN 4 7 ] 0 ]"
Run = Callable[..., str]


def python_value(text: str) -> int:
    """The oracle: the expression as Python, evaluated by Python."""
    code = [f"{t[1:]}([" if "[" in t else "])," if t == "]" else f"{t}," for t in text.split()]
    named = {"MIN": min, "MAX": max, "MED": lambda some: int(statistics.median(some))}
    return int(eval("".join(code).strip(","), named))


def python_parents(text: str) -> list[int]:
    """The operator that each token belongs to."""
    parents, opened = [], [-1]
    for position, token in enumerate(text.split()):
        parents.append(opened[-1])
        if token == "]":
            opened.pop()
        elif token.startswith("["):
            opened.append(position)
    return parents


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model that is mostly right, a random one as the paper's, and one without a tree."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    kinds = {"able": ABLE, "random": RANDOM, "flat": replace(RANDOM, model="lstm")}
    for name, settings in kinds.items():
        model = able_model() if name == "able" else TASK.model(settings)
        save_model(folder / f"{name}.safetensors", TASK, settings, model, 0.5)
    return {name: folder / f"{name}.safetensors" for name in kinds}


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


def small_data(**deeper: list[Expression]) -> Data:
    splits = {"train": some_expressions(5), "test": some_expressions(30), **deeper}
    return Data({name: tables_of(some) for name, some in splits.items()}, "")


# evaluate


@pytest.mark.parametrize("name", ["able", "random"])
def test_evaluate_a_file(name: str, models: dict[str, Path], tmp_path: Path, run: Run) -> None:
    texts = [text_of(expression) for expression in some_expressions(30)]
    (tmp_path / "own.txt").write_text("".join(f"{t}\t{python_value(t)}\n" for t in texts))
    said = json.loads(
        run("evaluate", "listops", "--model", models[name], "--data", tmp_path / "own.txt")
    )
    model, _ = Commands(TASK).load(models[name])
    assert isinstance(model, LatentTree)
    readings = read(Decoder(model), [parse(text) for text in texts], 5)
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
    assert "rounds=0, but at least 1" in complaint(*command, "--rounds", "0")


# The model in the package


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


# predict


def reading_of(text: str, parents: list[int], values: list[int]) -> Reading:
    return Reading(parse(text), tree_of(parse(text)), parents, [values])


def test_a_right_tree_as_text() -> None:
    truth = tree_of(parse(EXPRESSION))
    assert reading_of(EXPRESSION, truth.parents, truth.values).text() == (
        "[MAX 2 9 [MIN 4 7 ] 0 ] = 9  (right)\n"
        "MAX = 9\n"
        "├─ 2\n"
        "├─ 9\n"
        "├─ MIN = 4\n"
        "│  ├─ 4\n"
        "│  └─ 7\n"
        "└─ 0"
    )


def test_a_wrong_tree_as_text() -> None:
    parents = [-1, 0, 0, 0, 3, 0, 0, 6, 0]
    values = [7, 2, 9, 5, 4, 7, 3, 1, 0]
    assert reading_of(EXPRESSION, parents, values).text() == (
        "[MAX 2 9 [MIN 4 7 ] 0 ] = 7  (wrong, it is 9)\n"
        "MAX = 7   <- it is 9\n"
        "├─ 2\n"
        "├─ 9\n"
        "├─ MIN = 5   <- it is 4\n"
        "│  └─ 4\n"
        "├─ 7   <- belongs to MIN, token 4\n"
        "└─ ]\n"
        "   └─ 0 = 1   <- it is 0; belongs to MAX, token 1"
    )


def test_loops_as_text() -> None:
    """4 and 9 are below each other, MIN below 4, 7 below itself; brackets hang on brackets."""
    parents = [-1, 8, 4, 4, 2, 5, 6, 0, 6]
    truth = tree_of(parse(EXPRESSION))
    reading = reading_of(EXPRESSION, parents, [max(v, 0) for v in truth.values])
    assert reading.text().splitlines()[1:] == [
        "MAX = 9",
        "└─ 0",
        "]",
        "└─ ]",
        "   └─ 2   <- belongs to MAX, token 1",
        "9   <- belongs to MAX, token 1",
        "└─ 4   <- belongs to MIN, token 4",
        "   └─ MIN = 4   <- belongs to MAX, token 1",
        "7   <- belongs to MIN, token 4",
    ]


def test_what_hangs_on_a_bracket_that_sends_nothing_as_text() -> None:
    """And 9, which hangs on itself, has one line below it."""
    truth = tree_of(parse(EXPRESSION))
    parents = [-1, 2, 2, 0, 3, 3, -1, 6, -1]
    reading = reading_of(EXPRESSION, parents, [max(v, 0) for v in truth.values])
    assert reading.text().splitlines()[1:] == [
        "MAX = 9",
        "└─ MIN = 4",
        "   ├─ 4",
        "   └─ 7",
        "9   <- belongs to MAX, token 1",
        "└─ 2   <- belongs to MAX, token 1",
        "]",
        "└─ 0   <- belongs to MAX, token 1",
    ]
    assert drawing(reading).count('class="missed"') == 3


@pytest.mark.parametrize("name", ["able", "random"])
def test_every_token_is_shown_once_and_marked_rightly(name: str, models: dict[str, Path]) -> None:
    model, _ = Commands(TASK).load(models[name])
    assert isinstance(model, LatentTree)
    for reading in read(Decoder(model), some_expressions(10), 5):
        shown = [node.position for node in reading.outline()]
        assert len(set(shown)) == len(shown)
        hidden = set(range(len(reading.expression))) - set(shown)
        assert all(reading.expression[k] == CLOSE for k in hidden)
        lines = reading.text().splitlines()[1:]
        assert len(lines) == len(shown)
        text, parents = text_of(reading.expression), python_parents(text_of(reading.expression))
        assert (f"= {python_value(text)}  (right)" in reading.text()) == reading.right
        for line, k in zip(lines, shown, strict=True):
            wrong = reading.parents[k] != parents[k] and reading.expression[k] != CLOSE
            assert ("belongs to" in line) == wrong


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
        (reading,) = read(Decoder(model), [parse(text)], 5)
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
    assert "expression 1: '[MAX' alone is none" in cut and "quotes" in cut
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


# The page


@pytest.fixture(scope="module")
def page(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Right and wrong trees, short and long; and a model with a name that would like to run."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    readings = []
    for name in ("able", "random"):
        model, _ = Commands(TASK).load(models[name])
        assert isinstance(model, LatentTree)
        readings += read(Decoder(model), some_expressions(1), 4)
    write_page(path, readings, "<script>alert(1)</script>")
    return path


def test_the_page_is_whole_and_needs_nothing(page: Path) -> None:
    read_page = Page(page.read_text())
    assert len(read_page.all("section")) == len(read_page.all("svg")) == 8
    assert not read_page.all("script") and "<script>" not in page.read_text()
    assert "<script>alert(1)</script>" in read_page.text, "escaped, not lost"
    for _, attributes in read_page.elements:
        for name in ("src", "href", "srcset", "action"):
            assert (attributes.get(name) or "data:").startswith("data:")
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"@import|url\(|https?:", page.read_text())
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in read_page.all("svg"))
    for expression in some_expressions(1):
        assert text_of(expression) in read_page.text


def test_the_drawing_shows_the_tree_and_every_round() -> None:
    parents = [-1, 0, 0, 0, 3, 0, 0, 0, 0]
    values = [[8, 2, 9, 4, 4, 7, 1, 0, 1], [7, 2, 9, 5, 4, 7, 1, 0, 1]]
    reading = Reading(parse(EXPRESSION), tree_of(parse(EXPRESSION)), parents, values)
    svg = ElementTree.fromstring(drawing(reading))
    paths = [path.attrib["class"] for path in svg.iter("path")]
    assert (paths.count("edge"), paths.count("edge wrong"), paths.count("missed")) == (5, 1, 1)
    nodes = [node.attrib["class"] for node in svg.iter("g")]
    assert (nodes.count("node"), nodes.count("node wrong")) == (4, 3), "MAX, MIN, and 7"
    words = [(text.attrib["class"], text.text) for text in svg.iter("text")]
    assert [text for kind, text in words if kind == "row"] == ["tokens", "round 1", "round 2"]
    assert ("early", "8") in words, "MAX needs two rounds, so an 8 is not an error in the first"
    for wrong in ("7", "5"):  # of MAX and MIN, in the tree and in a round; not the 7 below MAX
        assert words.count(("value wrong", wrong)) == 2
    assert heights(reading) == [2, 0, 0, 1, 0, 0, 0, 0, 0]
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    for text in svg.iter("text"):
        assert 0 < float(text.attrib["x"]) < width and 0 < float(text.attrib["y"]) < height


def test_predict_writes_the_page(models: dict[str, Path], tmp_path: Path, run: Run) -> None:
    path = tmp_path / "new" / "page.html"
    said = run("predict", "listops", EXPRESSION, "--model", models["able"], "--html", path)
    assert str(path) in said and EXPRESSION in Page(path.read_text()).text


@in_browser
@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1200, "dark")])
def test_the_page_fits_phones_and_screens(
    page: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    measured, console = measured_in_browser(page, tmp_path, width, scheme)
    assert measured["overflow"] <= 0, "no scrolling sideways"
    assert (measured["paper"] == "rgb(255, 255, 255)") == (scheme == "light")
    assert not console


# data


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


# What the page of a run shows


@pytest.mark.parametrize("name", ["able", "random"])
def test_the_panels_are_what_the_model_does(name: str, models: dict[str, Path]) -> None:
    model, settings = Commands(TASK).load(models[name])
    assert isinstance(model, LatentTree)
    examples, *grids = TASK.panels(model, settings, small_data())
    if isinstance(model.edges.encode, Counters):
        counters = grids.pop(0)
        assert isinstance(counters, Grid)
        table = [[float(text) for text, _ in row] for row in counters.cells]
        learned = torch.cat([model.edges.encode.table().T, model.edges.encode.distance[:, None]], 1)
        assert torch.allclose(torch.tensor(table), learned.detach(), atol=0.051)
    assert isinstance(examples, Examples) and len(grids) == 3
    assert "of 120 test expressions are wrong" in examples.note
    assert len(examples.rows) > 4 and all(row[-1].right is False for row in examples.rows[4:])
    for expression, *steps in examples.rows:
        (reading,) = read(Decoder(model), [parse(expression.text)], 5)
        assert len(steps) == expression.text.count("[")
        for step in steps:
            assert step.right == (not step.caption)
        assert steps[-1].text.startswith(reading.name(0)), "the root comes last"
        assert steps[-1].text.endswith(f" = {reading.answer}")
        assert ("it is" in steps[-1].caption) == (reading.answer != python_value(expression.text))
        if name == "able":  # whose trees are right: what an operator got is what those before made
            assert not any("children" in step.caption for step in steps)
    for grid in grids:
        assert isinstance(grid, Grid) and (len(grid.rows), len(grid.columns)) == (10, 10)
        operator = grid.corner.split()[0]
        cells = [cell for row in grid.cells for cell in row]
        for k, (text, right) in enumerate(cells):
            assert right == (int(text) == python_value(f"[{operator} {k // 10} {k % 10} ]"))
        if name == "able":
            assert sum(bool(right) for _, right in cells) > 50


def test_the_panels_of_a_model_without_a_tree(models: dict[str, Path]) -> None:
    model, settings = Commands(TASK).load(models["flat"])
    (examples,) = TASK.panels(model, settings, small_data())
    assert isinstance(examples, Examples)
    for expression, answer in examples.rows:
        said = int(answer.text.removeprefix("= "))
        assert answer.right == (said == python_value(expression.text))
