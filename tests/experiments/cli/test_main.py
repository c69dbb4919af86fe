"""The command line: help on one screen, one line for every mistake."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

import dcgraph
from dcgraph.experiments import cli
from dcgraph.experiments.cli.compare import COMPARISONS
from dcgraph.experiments.engine.errors import Interrupted
from dcgraph.experiments.engine.files import write_atomically
from dcgraph.experiments.figures import FIGURES
from dcgraph.experiments.tasks import TABLES, TASKS
from dcgraph.experiments.tasks.addition.settings import BEST

TASK_COMMANDS = ["train", "evaluate", "predict", "data"]


def shown_help(
    command: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int,
) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit) as stop:
        cli.main([*command, "--help"])
    assert stop.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width + 2  # what a docstring has in a line is not folded
    return lines


@pytest.mark.parametrize(
    "command",
    [
        [],
        *([name] for name in cli.COMMANDS),
        *([name, task] for task in TASKS for name in TASK_COMMANDS[1:]),
    ],
)
def test_help_fits_a_screen(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown_help(command, capsys, monkeypatch, 80)
    named = {"reproduce": len(TABLES), "table": len(TABLES), "figure": len(FIGURES)}
    assert len(lines) <= 25 + (named.get(command[0], 8) if command else 8)
    if command:
        assert lines[0].startswith(f"usage: dcgraph {' '.join(command)}")
    else:
        for name in cli.COMMANDS:
            assert any(f" {name} " in line for line in lines)


def test_help_of_training_names_every_setting_with_its_default(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown_help(["train", "addition", "--preset", "best"], capsys, monkeypatch, 110)
    assert len(lines) <= 78
    text = "\n".join(lines)
    for name, default in asdict(BEST).items():
        assert f"--{name.replace('_', '-')}" in text
        if not isinstance(default, bool | str):
            assert f"(default: {default})" in text
    assert "(default: runs/addition-best)" in text


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("figure", FIGURES),
        ("reproduce", TABLES),
        ("table", TABLES),
        ("train", TASKS),
        ("compare", COMPARISONS),
    ],
)
def test_help_names_what_there_is(
    command: str,
    names: Collection[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = shown_help([command], capsys, monkeypatch, 80)
    for name in names:
        (line,) = [line for line in lines if line.startswith(f"  {name} ")]
        assert len(line.split()) > 3  # it says what it is about


def test_help_says_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["figure", "--help"])
    shown = capsys.readouterr().out
    assert "(default: figures)" in shown
    assert "(default: 0)" in shown


def test_unknown_command_names_the_closest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["figgure", "simplex"]) == 2
    assert one_line(capsys.readouterr().err) == (
        "dcgraph: unknown command 'figgure'; did you mean 'figure'? "
        "There are: demo, train, search, evaluate, predict, reproduce, table, compare, figure, "
        "data, playground."
    )
    assert cli.main(["xyz"]) == 2
    assert "unknown command 'xyz'; there are: demo, train," in one_line(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["figure", "--help"]),
        (["--sede"], ["unknown argument '--sede'", "dcgraph --help"]),
        (["figure"], ["required", "NAME", "dcgraph figure --help"]),
        (["figure", "simplex", "--sede", "3"], ["--sede", "did you mean --seed?"]),
        (["figure", "simplex", "--seed", "x"], ["--seed", "'x'"]),
        (["figure", "simplex", "twice"], ["twice"]),
        (["train"], ["TASK", "dcgraph train --help"]),
        (["train", "adition"], ["unknown task 'adition'", "did you mean 'addition'"]),
        (["train", "no_such:Task"], ["cannot load task", "no_such"]),
        (["train", "json:JSONDecoder"], ["is not a dcgraph.experiments.engine.Task"]),
        (["train", "addition", "--preset", "bets"], ["did you mean 'best'"]),
        (["train", "addition", "--leaning-rate", "1"], ["--leaning-rate"]),
        (["train", "addition", "--lr", "-1"], ["lr=-1.0", "learning rate is > 0"]),
        (["train", "addition", "--lr", "x"], ["--lr", "'x'"]),
        (["train", "addition", "--summands", "17"], ["summands=17", "2 to 16"]),
        (["train", "addition", "--sweep", "taw=1"], ["did you mean 'tau'"]),
        (["train", "addition", "--sweep", "lr=1e-4..1e-2"], ["--draws"]),
        (["train", "addition", "--device", "gpu"], ["unknown device 'gpu'", "cuda"]),
        (["train", "addition", "--device", "meta"], ["cannot train", "cuda"]),
        (["train", "addition", "--seed", "-1"], ["seed=-1", "between"]),
        (["train", "addition", "--at-once", "-1"], ["at least 1"]),
        (["evaluate", "addition", "--decode", "foo"], ["'foo'", "argmax"]),
        (["predict", "addition", "--count", "x"], ["--count", "'x'"]),
        (["table", "adition"], ["unknown table 'adition'", "did you mean 'addition'"]),
        (["reproduce", "listop"], ["unknown table 'listop'"]),
        (["reproduce", "--dry"], ["required", "NAME", "dcgraph reproduce --help"]),
        (["evaluate", "parity:Parity"], ["has no command 'evaluate'", "train"]),
    ],
)
def test_mistakes_in_the_arguments_are_one_line(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    line = one_line(capsys.readouterr().err)
    assert line.startswith("dcgraph: ")
    for word in words:
        assert word in line


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"dcgraph {dcgraph.__version__}\n"


def test_without_an_extra_it_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    assert cli.main(["predict", "addition"]) == 1
    assert one_line(capsys.readouterr().err) == (
        "dcgraph: safetensors is not installed; run: pip install 'dcgraph[cli]' "
        "(in a checkout: pip install '.[cli]')"
    )


def one_line(text: str) -> str:
    (line,) = text.splitlines()
    return line


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_to_stop_is_heard_where_nothing_is_trained(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    number, during = getattr(signal, name), []

    def write(draft: Path) -> None:
        draft.write_text("half")
        try:
            signal.raise_signal(number)
        except Exception:  # what is swallowed somewhere is not this
            raise AssertionError from None
        finally:
            during.append(signal.getsignal(signal.SIGTERM))

    def demo() -> None:
        write_atomically(tmp_path / "file", write)

    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP)]
    monkeypatch.setitem(cli.COMMANDS, "demo", demo)
    assert cli.main(["demo"]) == 128 + number
    assert capsys.readouterr().err.startswith("dcgraph: interrupted; ")
    assert not list(tmp_path.iterdir())
    assert name == "SIGINT" or during == [signal.SIG_DFL], "a second one ends at once"
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP)] == before


@pytest.mark.parametrize("rank", [0, 1])
def test_an_interruption_is_said_by_one_rank(
    rank: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def demo() -> None:
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setitem(cli.COMMANDS, "demo", demo)
    monkeypatch.setenv("RANK", str(rank))
    assert cli.main(["demo"]) == 128 + signal.SIGTERM
    assert capsys.readouterr().err.count("interrupted; ") == (rank == 0)


def test_no_memory_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(cli.COMMANDS, "demo", lambda: torch.empty(1 << 60))
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().err.startswith("dcgraph: there is not enough memory; use a smaller")


def test_a_terminal_that_lacks_a_character_is_no_reason_to_stop() -> None:
    command = [sys.executable, "-m", "dcgraph", "table", "addition"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    root = Path(__file__).parents[3]
    said = subprocess.run(command, capture_output=True, env=environment, cwd=root, check=True)
    assert b" ? 0." in said.stdout and "±".encode() not in said.stdout
