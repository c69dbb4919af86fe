"""The command line: help on one screen, one line for every mistake, files where they were asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dcgraph import cli, figures


@pytest.mark.parametrize("command", [[], ["figure"]])
def test_help_fits_a_screen_and_names_the_figures(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        cli.main([*command, "--help"])
    assert stop.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    for name in figures.FIGURES:
        (line,) = [line for line in lines if f" {name} " in line]
        assert len(line.split()) > 3  # it says what the figure is about


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
        "There are: saturation, simplex."
    )


def test_unknown_command_names_the_closest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["figgure", "simplex"]) == 2
    assert one_line(capsys.readouterr().err) == (
        "dcgraph: unknown command 'figgure'; did you mean 'figure'? There are: figure."
    )
    assert cli.main(["xyz"]) == 2
    assert one_line(capsys.readouterr().err).endswith("unknown command 'xyz'; there are: figure.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["figure", "--help"]),
        (["figure"], ["NAME", "dcgraph figure --help"]),
        (["figure", "simplex", "--sede", "3"], ["--sede", "meant", "--seed"]),
        (["figure", "simplex", "--seed", "x"], ["--seed", "'x'"]),
        (["figure", "simplex", "twice"], ["twice"]),
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
        "dcgraph: tyro is not installed; run: pip install 'dcgraph[cli,viz]'"
    )


def test_without_matplotlib_only_figures_fail() -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import dcgraph, dcgraph.cli\n"
        "assert 'tyro' in sys.modules\n"
        "sys.exit(dcgraph.cli.main(['figure', 'simplex']))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 1
    assert one_line(run.stderr) == (
        "dcgraph: matplotlib is not installed; run: pip install 'dcgraph[cli,viz]'"
    )


def one_line(text: str) -> str:
    (line,) = text.splitlines()
    return line
