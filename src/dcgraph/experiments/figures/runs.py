"""The records that figures are drawn from."""

from __future__ import annotations

from pathlib import Path

from ..engine.records import Record, RecordError
from ..engine.runs import finished_record
from ..engine.tables import Table, jobs


def records_of(table: Table, row: str, results: Path) -> list[Record]:
    """The records of a row of a table, by seed; all of them."""
    wanted = jobs(table, results)[row]
    records = [record for job in wanted if (record := finished_record(job))]
    if len(records) < len(wanted):
        raise RecordError(
            f"{str(results)!r} lacks {len(wanted) - len(records)} of the {len(wanted)} records of "
            f"{row!r}; choose --results, or run: dcgraph reproduce {table.name}"
        )
    return records
