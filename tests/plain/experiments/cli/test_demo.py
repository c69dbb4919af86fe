"""The demo: what a newcomer sees first must be true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dcgraph.experiments import cli


def test_the_demo_shows_what_the_method_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["demo", "--seeds", "2", "--out", str(tmp_path)]
    assert cli.main(arguments) == 0
    shown = capsys.readouterr().out
    means = [int(mean) for mean in re.findall(r"mean (\d+)", shown)]
    assert len(means) == 2 and means[0] > means[1] + 10
    assert "ahead in 2 of 2" in shown and shown.count("symbol") == 6
    assert cli.main(arguments) == 0  # at once: the records are there
    assert capsys.readouterr().out == shown
    assert cli.main(["demo", "--seeds", "0"]) == 2
