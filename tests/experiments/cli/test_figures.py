"""Figures from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dcgraph.experiments import cli, figures


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


def test_without_matplotlib_only_figures_fail() -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import dcgraph, dcgraph.experiments.cli\n"
        "sys.exit(dcgraph.experiments.cli.main(['figure', 'simplex']))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 1
    assert one_line(run.stderr) == (
        "dcgraph: matplotlib is not installed; run: pip install 'dcgraph[viz]' "
        "(in a checkout: pip install '.[viz]')"
    )


def one_line(text: str) -> str:
    (line,) = text.splitlines()
    return line
