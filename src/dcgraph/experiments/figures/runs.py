"""The records that figures are drawn from: all seeds of a run, or an error that says what lacks."""

from __future__ import annotations

from pathlib import Path

from ..engine.errors import RecordError
from ..engine.records import Probes, Record, read_probes, read_record
from ..engine.tables import Run, Table, record_of


def run_of(table: Table, name: str) -> Run:
    """The run with a name."""
    return next(run for row in table.rows for run in row.runs if run.name == name)


def complete_records(table: Table, run: Run, results: Path) -> list[Record]:
    """The records of a run, by seed."""
    places = _places(table, run, results)
    found = [read_record(place) for place in places if place.exists()]
    _check_complete(table, run, results, len(found), "records")
    return found


def with_probes(table: Table, run: Run, results: Path) -> list[tuple[Record, Probes]]:
    """The records of a run, each with its probe curve."""
    records = complete_records(table, run, results)
    found = [probes for place in _places(table, run, results) if (probes := read_probes(place))]
    _check_complete(table, run, results, len(found), "probe curves")
    return list(zip(records, found, strict=True))


def _places(table: Table, run: Run, results: Path) -> list[Path]:
    return [record_of(run, seed, table.task, results) for seed in run.each_seed]


def _check_complete(table: Table, run: Run, results: Path, found: int, what: str) -> None:
    if found < run.seeds:
        raise RecordError(
            f"{str(results)!r} lacks {run.seeds - found} of the {run.seeds} {what} of "
            f"{run.name!r}; choose --results, or run: dcgraph reproduce {table.name}"
        )
