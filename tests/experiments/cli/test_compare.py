"""`dcgraph compare` makes what is missing, and shows tables and figures."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from dcgraph.experiments import cli
from dcgraph.experiments.cli import tables
from dcgraph.experiments.cli.compare import COMPARISONS, Compared
from dcgraph.experiments.engine.comparison import Comparison
from dcgraph.experiments.engine.metrics import Metric
from dcgraph.experiments.figures import FIGURES
from dcgraph.experiments.tasks import TABLES
from parity import QUICK, Parity

compare = importlib.import_module("dcgraph.experiments.cli.compare")  # cli has its function
WHOLE = Comparison("parity", replace(QUICK, epochs=1), Metric("accuracy"), "Parity").estimators()
SMALL = replace(WHOLE, rows=tuple(replace(r, choices=r.choices[2:]) for r in WHOLE.rows[:2]))


def test_every_comparison_has_its_tables_and_figure() -> None:
    for one in COMPARISONS.values():
        assert set(one.tables) <= set(TABLES) and set(one.figures) <= set(FIGURES)


def test_dry_says_what_would_run_and_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "--results", "nowhere", "--dry"]) == 0
    said = capsys.readouterr().out
    for task in ("addition", "listops", "paths"):
        assert f"estimators-{task}, plane-{task}: " in said, "what is alike trains together"
    assert "runs with what the validation split chooses" in said
    assert "In all " in said and " minutes on 2 CPU cores" in said
    assert cli.main(["compare", "plane", "--results", "nowhere", "--dry"]) == 0
    alone = capsys.readouterr().out
    assert "plane-paths: 210 runs, 0 have a record." in alone and "estimators-" not in alone


def test_an_unknown_comparison_names_the_closest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "plain"]) == 2
    assert "unknown comparison 'plain'; did you mean 'plane'?" in capsys.readouterr().err


def test_it_makes_what_is_missing_in_two_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """First what tau is chosen by, then the fresh seeds; and nothing the next time."""
    monkeypatch.setattr(
        compare, "COMPARISONS", {"parity": Compared("", ("small",), ("plane",), 1.0)}
    )
    monkeypatch.setattr(compare, "get_table", {"small": SMALL}.__getitem__)
    monkeypatch.setattr(tables, "get_task", lambda name: Parity())
    command = ["compare", "--results", str(tmp_path), "--device", "cpu", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    said = capsys.readouterr().out
    assert "estimators-parity: 16 runs, 0 have a record." in said
    assert "then: 16 runs with what the validation split chooses." in said
    assert "estimators-parity: 32 runs, 16 have a record." in said
    assert "| gumbel_softmax " in said and "not run" not in said
    assert "No figure 'plane':" in said
    records = sorted((tmp_path / "parity").glob("*/seed-*.json"))
    assert len(records) == 32
    seeds = {json.loads(path.read_text())["settings"]["seed"] for path in records}
    assert seeds == set(range(6))
    before = [path.read_bytes() for path in records]
    assert cli.main(command) == 0
    again = capsys.readouterr().out
    assert "32 runs, 32 have a record" in again and "to run" not in again
    assert [path.read_bytes() for path in records] == before
