"""What needs no torch does not wait for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dcgraph.experiments.cli import COMMANDS
from dcgraph.experiments.tasks import TABLES

RESULTS = Path(__file__).parents[4] / "results"
_PROGRAM = """
import sys
from dcgraph.experiments.cli import main

for words in {commands!r}:
    try:
        code = main(words)
    except SystemExit as stop:
        code = stop.code
    heavy = sorted({{"torch", "matplotlib", "numpy", "jinja2", "PIL", "tqdm"}} & set(sys.modules))
    if heavy or code not in {codes!r}:
        sys.exit(f"{{words}} gave {{code}} and imported {{heavy}}")
"""


def answered_without_torch(commands: list[list[str]], codes: list[int]) -> None:
    program = _PROGRAM.format(commands=commands, codes=codes)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_help_and_version_need_no_torch() -> None:
    answered_without_torch([["--help"], ["--version"], *([c, "--help"] for c in COMMANDS)], [0])


def test_mistakes_need_no_torch() -> None:
    wrong = [[], ["figgure"], ["--foo"], ["train"], ["table", "x"], ["figure", "x"]]
    answered_without_torch([*wrong, ["reproduce", "--dri"], ["train", "x"]], [2])


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_tables_need_no_torch(json: list[str]) -> None:
    shown = [["table", name, "--results", str(RESULTS), *json] for name in TABLES]
    answered_without_torch(shown, [0, 1])  # 1: a table without records


def test_what_would_run_is_said_without_torch() -> None:
    dry = [["reproduce", name, "--results", str(RESULTS), "--dry"] for name in TABLES]
    answered_without_torch(dry, [0])


def test_the_playground_is_written_without_torch(tmp_path: Path) -> None:
    written = ["playground", "--no-open", "--out", str(tmp_path / "page.html")]
    answered_without_torch([written], [0])


def test_the_test_can_fail() -> None:
    with pytest.raises(AssertionError, match=r"imported.*torch"):
        answered_without_torch([["predict", "addition", "--help"]], [0])
