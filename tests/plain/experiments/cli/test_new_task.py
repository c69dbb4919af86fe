"""The example of docs/new-task.md, as a user would run it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from dcgraph.experiments import cli
from dcgraph.experiments.engine.metrics import Metric
from dcgraph.experiments.engine.records import read_record

PAGE = Path(__file__).parents[4] / "docs" / "new-task.md"


def test_the_example_trains_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(code.splitlines()) <= 60
    (command,) = re.findall(r"```\n(dcgraph .*)\n```", PAGE.read_text())
    assert "train parity:Parity" in command
    (tmp_path / "example.py").write_text(code)  # tests have a parity of their own
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert cli.main(command.replace("parity:", "example:").split()[1:]) == 0
    assert "runs/parity-default/records" in capsys.readouterr().out
    records = [read_record(path) for path in Path("runs").glob("*/records/*.json")]
    assert len(records) == 8
    assert {record.population.size for record in records} == {8}
    assert max(record.value(Metric("accuracy")) or 0.0 for record in records) == 1.0
