"""Tables from the command line: what is missing is run, what is there is kept."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dcgraph.experiments import cli
from dcgraph.experiments.cli import tables
from dcgraph.experiments.engine.metrics import Metric
from dcgraph.experiments.engine.records import read_record
from dcgraph.experiments.engine.tables import Column, Row, Run, Table, per_cent
from dcgraph.experiments.tasks import get_table
from pages import Page
from parity import QUICK, Parity

DECIDED = Column("test", per_cent(Metric("accuracy")), part="argmax")
SAMPLED = Column("test", per_cent(Metric("accuracy", decoder="sample")), part="sample")
SLOW = Row("slow", (Run("slow", QUICK, seeds=2, probes=True),), {DECIDED: (50.0, 1.5)})
FAST = Row("fast", (Run("fast", replace(QUICK, lr=1e-2), seeds=1),))
FASTER = Row("faster, by far", (Run("faster", replace(QUICK, lr=1e-1), seeds=1),))
SMALL = Table("small", "parity", "Parity.", (SLOW, FAST), (DECIDED, SAMPLED))
OTHER = Table("other", "parity", "The rest.", (FAST, FASTER), (replace(DECIDED, part=""),))


@pytest.fixture(autouse=True)
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = replace(SMALL, name="elsewhere", task="another")
    known = {"small": SMALL, "other": OTHER, "elsewhere": elsewhere}
    monkeypatch.setattr(tables, "get_table", known.__getitem__)
    monkeypatch.setattr(tables, "get_task", lambda name: Parity())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of the small table, as `reproduce` leaves them."""
    results = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "get_table", {"small": SMALL}.__getitem__)
        patch.setattr(tables, "get_task", lambda name: Parity())
        assert cli.main(["reproduce", "small", "--results", str(results), "--device", "cpu"]) == 0
    return results


def test_reproduce_runs_what_is_missing_and_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["reproduce", "small", "--results", str(tmp_path), "--device", "cpu"]
    assert cli.main([*small, "--rows", "slow"]) == 0
    said = capsys.readouterr().out
    assert "small: 2 runs, 0 have a record." in said
    assert "  to run: 'slow'; 2 replicas as one population, never run here before." in said
    first = tmp_path / "parity" / "slow" / "seed-0.json"
    before = first.read_bytes()
    assert cli.main(small) == 0
    said = capsys.readouterr().out
    assert "small: 3 runs, 2 have a record." in said
    assert "  to run: 'fast'; 1 replica, 2 took" in said and "| slow | " in said
    assert first.read_bytes() == before and not (tmp_path / ".small").exists()
    page = tmp_path / "reports" / "small.html"
    assert f"Report: {page}." in said
    read = Page(page.read_text())
    assert "Parity" in read.text and "dcgraph reproduce small" in read.text
    sections = {section["id"] for section in read.all("section")}
    assert {"dials", "chain"} <= sections, "the row with probes has them"


def test_records_of_other_settings_are_named_and_stay(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = replace(SLOW.runs[0], settings=replace(QUICK, tau=4.0, dropres=False))
    now = replace(SMALL, rows=(replace(SLOW, runs=(changed,)), FAST))
    monkeypatch.setattr(tables, "get_table", {"small": now}.__getitem__)
    folder = finished / "parity" / "slow"
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert cli.main(["reproduce", "small", "--results", str(finished), "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "small: 3 runs, 3 have a record." in said and "to run:" not in said
    (line,) = [line for line in said.splitlines() if "other settings" in line]
    assert line == (
        "  'slow' has records of other settings: tau was 1.0, is 4.0, dropres was True, is False; "
        f"delete {folder} to run it again."
    )
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_reproduce_says_that_it_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dry = ["reproduce", "small", "--results", str(tmp_path), "--dry"]
    assert cli.main(dry) == 0
    assert "checkpoint" not in capsys.readouterr().out
    (tmp_path / ".small").mkdir()
    (tmp_path / ".small" / "0123.pt").touch()
    assert cli.main(dry) == 0
    assert "goes on from its checkpoint" in capsys.readouterr().out


def test_each_population_has_a_line_of_its_own_and_the_time_it_took(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "get_table", get_table)
    assert cli.main(["reproduce", "addition", "--results", "nowhere", "--dry"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "to run:" in line]
    assert len(lines) > 5 and len(set(lines)) == len(lines)
    assert all(re.search(r"took \d+ s for the published records on", line) for line in lines)
    cnn = [line for line in lines if "'CNN baseline, 1 epoch" in line]
    assert ["paper)." in line for line in cnn] == [True, False], "what they differ in"


def test_a_table_needs_no_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "get_table", get_table)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["table", "addition"]) == 0
    assert "Our variant (preset best)" in capsys.readouterr().out
    (tmp_path / "results").mkdir()  # one's own come first
    assert cli.main(["table", "addition"]) == 1
    assert "'results' has no records" in capsys.readouterr().err


def test_tables_can_be_run_together_and_in_part(capsys: pytest.CaptureFixture[str]) -> None:
    """A row that is in both is run once, and what differs only in dials is one population."""
    both = ["reproduce", "small", "other", "--results", "nowhere", "--dry"]
    assert cli.main(both) == 0
    said = capsys.readouterr().out
    assert "small, other: 4 runs, 0 have a record" in said
    rows = "'small: slow', 'small: fast', 'other: faster, by far'"
    assert f"{rows}; 4 replicas as one population" in said
    for text, runs in (("fast", 1), ("fas", 2)):  # a whole name is only that row
        assert cli.main([*both, "--rows", text]) == 0
        assert f"small, other: {runs} runs" in capsys.readouterr().out
    assert cli.main([*both, "--rows", "slow", "by far"]) == 0
    assert "small, other: 3 runs" in capsys.readouterr().out
    assert cli.main([*both, "--rows", "medium"]) == 2
    assert "no row has 'medium' in its name; there are 'slow', 'fast'" in capsys.readouterr().err
    assert cli.main(["reproduce", "small", "elsewhere", "--dry"]) == 2
    assert "reproduce them one after the other" in capsys.readouterr().err


def test_rows_of_equal_names_and_settings_are_kept_apart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    again = Row("slow", (Run("slow, again", QUICK, seeds=2),))
    third = replace(OTHER, name="third", rows=(again,))
    monkeypatch.setattr(tables, "get_table", {"small": SMALL, "third": third}.__getitem__)
    assert cli.main(["reproduce", "small", "third", "--results", "nowhere", "--dry"]) == 0
    said = capsys.readouterr().out
    assert "small, third: 5 runs, 0 have a record" in said
    assert "'small: slow', 'third: slow', 'small: fast'; 3 replicas as one population" in said


def test_the_command_prints_both_forms(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.main(["table", "small", "--results", str(finished)]) == 0
    shown = capsys.readouterr().out
    assert "50.00 ± 1.50" in shown and "test, sample" in shown
    assert cli.main(["table", "small", "--results", str(finished), "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)
    assert {"row", "column", "mean", "std", "seeds", "paper"} == set(cells[0])
    value = read_record(finished / "parity" / "fast" / "seed-0.json").value(Metric("accuracy"))
    (cell,) = [c for c in cells if (c["row"], c["column"]) == ("fast", "test, argmax")]
    assert value is not None and cell["mean"] == pytest.approx(100 * value, abs=1e-4)
    assert cli.main(["table", "small", "--results", "nowhere"]) == 1
    assert "dcgraph reproduce small" in capsys.readouterr().err


def test_the_command_prints_a_part(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = ["table", "small", "--results", str(finished), "--part"]
    capsys.readouterr()
    assert cli.main([*table, "argmax"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Parity. By argmax.") and "sample" not in shown
    assert cli.main([*table, "argmax", "--json"]) == 0
    assert {cell["column"] for cell in json.loads(capsys.readouterr().out)} == {"test"}
    for name, remedy in (
        ("small", "did you mean 'sample'? There are: argmax, sample."),
        ("other", "it has none at all, show the whole."),
    ):
        assert cli.main(["table", name, "--part", "sampel"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line == f"dcgraph: table {name!r} has no part 'sampel'; {remedy}"
