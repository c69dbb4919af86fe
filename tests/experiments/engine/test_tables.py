"""Tables are rendered from records, which are found by the names of their runs."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dcgraph.experiments.engine.errors import RecordError
from dcgraph.experiments.engine.jobs import jobs_of
from dcgraph.experiments.engine.metrics import Metric
from dcgraph.experiments.engine.records import read_record
from dcgraph.experiments.engine.runs import perform
from dcgraph.experiments.engine.settings import setting
from dcgraph.experiments.engine.tables import (
    Column,
    Row,
    Run,
    Table,
    as_csv,
    as_json,
    as_text,
    part,
    per_cent,
    record_of,
)
from parity import QUICK, Parity, ParitySettings

ACCURACY = Metric("accuracy")
TEST = Column("test", per_cent(ACCURACY))
SMALL = Table(
    name="small",
    task="parity",
    title="Parity.",
    columns=(TEST, Column("never", lambda record: None)),
    rows=(
        Row("slow", (Run("slow", QUICK, seeds=3),), {TEST: (50.0, 1.5)}),
        Row("fast", (Run("fast", replace(QUICK, lr=1e-2), seeds=2),)),
    ),
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    everything = [job for row in SMALL.rows for job in jobs_of(SMALL, row, folder)]
    list(perform(Parity(), everything, folder / "work"))
    return folder


def test_a_table_from_records_beside_the_papers_numbers(results: Path) -> None:
    first, _, second, _ = as_json(SMALL, results)
    assert (first["row"], first["column"], first["seeds"]) == ("slow", "test", 3)
    assert first["paper"] == (50.0, 1.5) and second["paper"] is None and second["seeds"] == 2
    places = [results / "parity" / "slow" / f"seed-{seed}.json" for seed in range(3)]
    values = [read_record(place).metrics[ACCURACY] or 0.0 for place in places]
    assert first["mean"] == pytest.approx(100 * sum(values) / 3, abs=0.01)
    text = as_text(SMALL, results)
    assert "2 to 3 seeds" in text and "| 50.00 ± 1.50 |" in text
    assert len({len(line) for line in text.splitlines()[2:]}) == 1  # aligned


def test_a_table_as_csv_has_every_number(results: Path, tmp_path: Path) -> None:
    """What was not run has the paper's only, and a cell with neither has no line."""
    lines = list(csv.DictReader(as_csv(SMALL, results).splitlines()))
    assert [(line["row"], line["column"], line["seeds"]) for line in lines] == [
        ("slow", "test", "3"),
        ("fast", "test", "2"),
    ]
    first = as_json(SMALL, results)[0]
    assert (float(lines[0]["mean"]), float(lines[0]["std"])) == (first["mean"], first["std"])
    assert (lines[0]["paper"], lines[0]["paper std"], lines[1]["paper"]) == ("50.0", "1.5", "")
    (published,) = csv.DictReader(as_csv(SMALL, tmp_path).splitlines())
    assert (published["mean"], published["paper"], published["seeds"]) == ("", "50.0", "0")


def test_the_spread_is_that_of_a_sample(results: Path) -> None:
    seeds = Column("seed", lambda record: float(record.seed))
    three, two = as_json(replace(SMALL, columns=(seeds,)), results)
    assert (three["mean"], three["std"]) == (1, 1)  # of 0, 1 and 2
    assert (two["mean"], two["std"]) == (0.5, pytest.approx(0.5**0.5, abs=1e-4))


def test_a_table_without_records_has_no_numbers(tmp_path: Path) -> None:
    assert as_json(SMALL, tmp_path)[0]["mean"] is None
    assert "no records yet" in as_text(SMALL, tmp_path)


def test_a_row_without_any_record_says_that_it_was_not_run(results: Path) -> None:
    """A row that has records, of which none has a number for a column, was run."""
    never = Column("never", lambda record: None)
    later = Row("later", (Run("later", QUICK),), {TEST: (60.0, None)})
    table = replace(SMALL, columns=(never, TEST), rows=(*SMALL.rows, later))
    *_, fast, last = as_text(table, results).splitlines()
    assert [cell.strip() for cell in last.split("|")] == ["", "later", "not run", "", "60.00", ""]
    assert fast.split("|")[1].strip() == "fast" and not fast.split("|")[2].strip()
    assert [cell["mean"] for cell in as_json(table, results)[-2:]] == [None, None]


def test_a_part_of_a_table_has_the_columns_of_that_part(tmp_path: Path) -> None:
    sampled, decided = (replace(TEST, part=of) for of in ("sample", "argmax"))
    row = Row("slow", (Run("slow", QUICK),), {sampled: (50.0, 1.5)})
    table = replace(SMALL, columns=(sampled, decided), rows=(row,))
    assert [column.title for column in table.columns] == ["test, sample", "test, argmax"]
    half = part(table, "sample")
    assert [column.title for column in half.columns] == ["test"]
    text = as_text(half, tmp_path)
    assert text.startswith("Parity. By sample.") and "50.00 ± 1.50" in text
    assert "paper" not in as_text(part(table, "argmax"), tmp_path)
    with pytest.raises(ValueError, match="did you mean 'sample'"):
        part(table, "sampel")
    with pytest.raises(ValueError, match="it has none at all"):
        part(SMALL, "sample")


def test_what_rows_are_given_is_the_last_column(tmp_path: Path) -> None:
    rows = (replace(SMALL.rows[0], given="the parity"), SMALL.rows[1])
    lines = as_text(replace(SMALL, rows=rows), tmp_path).splitlines()
    assert lines[2].split("|")[-2].strip() == "given"
    assert lines[4].split("|")[-2].strip() == "the parity"


def test_a_file_that_is_no_record_is_an_error(tmp_path: Path) -> None:
    place = record_of(SMALL.rows[0].runs[0], 0, "parity", tmp_path)
    place.parent.mkdir(parents=True)
    place.write_text("[]")
    with pytest.raises(RecordError, match="is not a record"):
        as_json(SMALL, tmp_path)


def test_a_changed_default_changes_no_table_and_loses_no_record(results: Path) -> None:
    """The same rows under a class of settings with another default, and a new setting."""

    @dataclass(frozen=True, kw_only=True)
    class Changed(ParitySettings):
        width: int = setting(16, "another default")
        depth: int = setting(2, "a new setting")

    def changed(run: Run) -> Run:
        kept = {name: getattr(run.settings, name) for name in ("epochs", "batch", "lr")}
        return replace(run, settings=Changed(**kept))

    later = replace(
        SMALL, rows=tuple(replace(row, runs=tuple(map(changed, row.runs))) for row in SMALL.rows)
    )
    assert as_text(later, results) == as_text(SMALL, results)
    everything = [job for row in later.rows for job in jobs_of(later, row, results)]
    assert all(job.record.exists() for job in everything)
    assert not list(perform(Parity(), everything, results / "work"))
