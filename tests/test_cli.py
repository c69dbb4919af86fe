"""The command line: help on one screen, one line for every mistake, files where they were asked."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro

from dcgraph.experiments import cli, figures
from dcgraph.experiments.cli.parsing import parse_options, with_metavars
from dcgraph.experiments.engine.checkpoint import load
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
    assert max(map(len, lines[2:])) <= width + 2  # tyro does not fold the first paragraph
    return lines


def test_help_of_commands_of_other_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    """What has no type, or says more than a type, stays as it is."""

    def command(  # type: ignore[no-untyped-def]
        place: str,
        way: Literal["on", "back"],
        /,
        count=3,
        *,
        shade: Literal["red", "blue"] | None = None,
        size: int | None = None,
        own: Annotated[str, tyro.conf.arg(metavar="MINE")] = "",
    ) -> str:
        return f"{place} {way} {count} {shade} {size} {own}"

    named = with_metavars(command)
    said = parse_options(named, "do", ["there", "back", "--count", "4", "--size", "5"])
    assert said == "there back 4 None 5 "
    with pytest.raises(SystemExit):
        parse_options(named, "do", ["--help"])
    shown = capsys.readouterr().out
    for words in ("PLACE", "{on,back}", "--size INT", "{None,red,blue}", "MINE"):
        assert words in shown


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
    assert not re.search(r"\{None\}|\bSTR STR\b|\[STR", "\n".join(lines)), "arguments have names"
    listed = len(TABLES) if command == ["reproduce"] else 8  # names, a line for each
    assert len(lines) <= 25 + listed
    if command:
        assert f"dcgraph {' '.join(command)}" in lines[0]
    else:
        for name in cli.COMMANDS:
            assert any(f" {name} " in line for line in lines)


def test_help_of_training_names_every_setting_with_its_default(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown_help(["train", "addition", "--preset", "best"], capsys, monkeypatch, 110)
    assert len(lines) <= 55
    text = "\n".join(lines)
    for name, default in asdict(BEST).items():
        assert f"--{name.replace('_', '-')}" in text
        if not isinstance(default, bool | str):
            assert f"(default: {default})" in text
    assert "(default: runs/addition-best)" in text


@pytest.mark.parametrize(
    ("command", "names"), [("figure", figures.FIGURES), ("reproduce", TABLES), ("train", TASKS)]
)
def test_help_names_what_there_is(
    command: str,
    names: Collection[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = shown_help([command], capsys, monkeypatch, 80)
    for name in names:
        (line,) = [line for line in lines if line.strip(" │").startswith(f"{name} ")]
        assert len(line.split()) > 3  # it says what it is about


def test_help_says_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["figure", "--help"])
    shown = capsys.readouterr().out
    assert "(default: figures)" in shown
    assert "(default: 0)" in shown


def test_figure_writes_picture_and_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "folder"
    assert cli.main(["figure", "simplex", "--out", str(out), "--seed", "3"]) == 0
    picture, numbers = out / "simplex.png", out / "simplex.json"
    assert sorted(out.iterdir()) == [numbers, picture]
    assert json.loads(numbers.read_text())["seed"] == 3
    assert numbers.stat().st_size < 300_000
    plan, wrote, look = capsys.readouterr().out.splitlines()
    assert "seconds" in plan
    assert str(picture) in wrote
    assert str(numbers) in wrote
    assert figures.FIGURES["simplex"].look in look


def test_unknown_figure_names_the_closest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["figure", "saturaton"]) == 2
    assert one_line(capsys.readouterr().err) == (
        "dcgraph: unknown figure 'saturaton'; did you mean 'saturation'? "
        f"There are: {', '.join(figures.FIGURES)}."
    )


def test_unknown_command_names_the_closest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["figgure", "simplex"]) == 2
    assert one_line(capsys.readouterr().err) == (
        "dcgraph: unknown command 'figgure'; did you mean 'figure'? "
        "There are: demo, train, evaluate, predict, reproduce, table, figure, data."
    )
    assert cli.main(["xyz"]) == 2
    assert "unknown command 'xyz'; there are: demo, train," in one_line(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["figure", "--help"]),
        (["figure"], ["Missing", "NAME", "dcgraph figure --help"]),
        (["figure", "simplex", "--sede", "3"], ["--sede", "meant", "--seed"]),
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
        (["train", "addition", "--summands", "5"], ["summands=5", "2 or 3"]),
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


@pytest.mark.parametrize("below", [".", "folder"])
def test_file_in_the_way_of_the_folder(
    below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes").touch()
    out = str(tmp_path / "notes" / below)
    assert cli.main(["figure", "simplex", "--out", out]) == 1
    assert one_line(capsys.readouterr().err) == (
        f"dcgraph: cannot write into {out!r}: a file is in the way; "
        "choose another folder with --out."
    )


def test_without_tyro(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tyro", None)
    assert cli.main(["figure", "simplex"]) == 1
    assert one_line(capsys.readouterr().err) == (
        "dcgraph: tyro is not installed; run: pip install 'dcgraph[cli]'"
    )


def test_without_matplotlib_only_figures_fail() -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import dcgraph, dcgraph.experiments.cli\n"
        "assert 'tyro' in sys.modules\n"
        "sys.exit(dcgraph.experiments.cli.main(['figure', 'simplex']))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 1
    assert one_line(run.stderr) == (
        "dcgraph: matplotlib is not installed; run: pip install 'dcgraph[viz]'"
    )


QUICK = ["train", "parity:Parity", "--epochs", "2", "--evaluations", "2"]


def test_train_leaves_records_and_models_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    sweep = ["--sweep", "dropres=0,1", "--sweep", "width=4,8", "--seeds", "2"]
    assert cli.main([*QUICK, *sweep, "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert "8 replicas of parity on cpu" in shown.out and "accuracy/argmax" in shown.out
    assert str(out / "records") in shown.out
    progress = shown.err.splitlines()
    assert 2 <= len(progress) <= 2 * 20 and all("step" in line for line in progress)
    assert "left" in progress[-1] and "loss" in progress[-1] and "accuracy" in progress[-1]
    names = sorted(path.stem for path in (out / "records").iterdir())
    assert names[0] == "dropres-False_width-4_seed-0" and len(names) == 8
    assert sorted(path.stem for path in (out / "models").iterdir()) == names
    assert not (out / "checkpoints").exists()


def test_a_second_run_does_not_overwrite_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "run")]
    assert cli.main([*QUICK, *out]) == 0
    capsys.readouterr()
    assert cli.main([*QUICK, *out]) == 1
    assert "--resume" in one_line(capsys.readouterr().err)
    assert cli.main(["train", "parity:Parity", *out, "--resume"]) == 0  # nothing is left to do
    assert "accuracy/argmax" in capsys.readouterr().out
    assert cli.main([*QUICK, "--lr", "1", *out, "--resume"]) == 2
    assert "leave the others out" in one_line(capsys.readouterr().err)
    assert cli.main(["train", "parity:Parity", "--out", str(tmp_path), "--resume"]) == 1
    assert "no run" in one_line(capsys.readouterr().err)


def test_a_mistake_that_only_the_data_show_leaves_the_folder_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "run")]
    assert cli.main([*QUICK, "--batch", "100", *out]) == 2
    assert "64 training examples" in capsys.readouterr().err
    assert cli.main([*QUICK, *out]) == 0
    plan = tmp_path / "run" / "run.json"
    for content in ("{", "{}", json.dumps({"task": "other", "replicas": []})):
        plan.write_text(content)
        capsys.readouterr()
        assert cli.main(["train", "parity:Parity", *out, "--resume"]) == 1
        assert "run" in one_line(capsys.readouterr().err)


def test_training_needs_no_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "parity:Parity"]) == 0
    assert "best on the validation set" in capsys.readouterr().out


def test_a_terminal_gets_a_bar(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 120, 0, 0))
    run = subprocess.Popen(
        [sys.executable, "-m", "dcgraph", *QUICK, "--epochs", "40", "--out", str(tmp_path / "run")],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the end of what was written to a terminal
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert run.wait() == 0
    text = shown.decode()
    assert "step/s" in text and "accuracy/argmax" in text and "320/320" in text
    assert "<00:" in text  # the time left


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "dcgraph"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = ["train", "parity:Parity", "--out", str(out)]
    run = subprocess.Popen(
        [*command, *arguments, "--epochs", "2000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    checkpoints = out / "checkpoints"
    while not list(checkpoints.glob("*.pt")):
        assert run.poll() is None, run.communicate()
        time.sleep(0.01)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 130
    assert errors.splitlines()[-1] == (
        f"dcgraph: interrupted; go on with: dcgraph train parity:Parity --out {out} --resume"
    )
    (checkpoint,) = checkpoints.glob("*.pt")
    assert load(checkpoint)["task"] == "parity"


def test_tensorboard_files_are_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert cli.main([*QUICK, "--tensorboard", "--out", str(tmp_path)]) == 1
    assert "pip install 'dcgraph[tensorboard]'" in capsys.readouterr().err


def test_tensorboard_files_have_the_curves(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard, an extra, is not installed")
    assert cli.main([*QUICK, "--seeds", "2", "--tensorboard", "--out", str(tmp_path)]) == 0
    runs = sorted(path.name for path in (tmp_path / "tensorboard").iterdir())
    assert runs == ["seed-0", "seed-1"]
    (events,) = (tmp_path / "tensorboard" / "seed-1").iterdir()
    assert b"accuracy/argmax" in events.read_bytes()


def one_line(text: str) -> str:
    (line,) = text.splitlines()
    return line
