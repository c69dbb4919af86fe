"""The commands of the page "Your own graph" work as they stand, and show what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from dcgraph.experiments import cli

PAGE = (Path(__file__).parents[1] / "your-own-graph.md").read_text()
BLOCKS = re.findall(r"^```\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
ASKED_OF_THE_RUN = {
    "Paths.answerer()  # or ": "",
    ", beam=8": "",
    '"bacterium", "causes,**treats"': '"Conrad", "child,mother,born_in"',
}
SHORT = ["--epochs", "3", "--dim", "4", "--beam", "2"]


def test_every_step_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training is cut short: that it says the same things is tested, not the numbers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    commands = [block.splitlines() for block in BLOCKS if block.startswith("dcgraph ")]
    said = ""
    for (command,) in commands:
        words = shlex.split(command)[1:]
        assert cli.main(words + (SHORT if words[0] == "train" else [])) == 0, command
        shown = capsys.readouterr()
        said += shown.out + shown.err
    assert [words.split()[1] for (words,) in commands] == [
        *("data", "train", "predict", "predict", "evaluate")
    ]
    _, head, _, split, last, *_ = BLOCKS
    assert (tmp_path / "royals.tsv").read_text().startswith(head)
    assert all(line in said for line in split.splitlines())
    without_numbers = re.sub(r"\d+", "", last).strip()
    assert without_numbers in re.sub(r"\d+", "", said)
    assert (tmp_path / "runs/paths-royals/report.html").exists()
    asking = (Path(__file__).parents[1] / "asking.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", asking, flags=re.MULTILINE | re.DOTALL)
    for theirs, own in ASKED_OF_THE_RUN.items():
        assert theirs in code
        code = code.replace(theirs, own)
    (tmp_path / "royals.tsv").unlink()  # the model's file has the graph
    names: dict[str, Any] = {}
    exec(compile(code, "asking.md", "exec"), names)  # with the folder of a run, as a comment says
    assert names["found"].answers


def test_what_is_said_of_the_example() -> None:
    assert "39 people, 8 towns and 3 regions" in PAGE
