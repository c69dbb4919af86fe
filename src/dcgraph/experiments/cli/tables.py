"""``dcgraph reproduce`` and ``table``: the paper's numbers and ours."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..._arguments import shown
from ..engine.jobs import (
    Job,
    differences,
    finished_record,
    jobs_of,
    labels,
    records_folder,
    records_of_dcgraph,
)
from ..engine.memory import keep_freed_memory
from ..engine.records import Record, read_probes, read_record
from ..engine.settings import Settings, populations
from ..engine.tables import Table, as_csv, as_json, as_text
from ..engine.tables import part as part_of
from ..tasks import get_table, get_task
from .parsing import CommandError
from .progress import show_progress
from .train import device_of_rank

if TYPE_CHECKING:
    from ..engine.ranks import Ranks
    from ..engine.task import AnyTask

RowsOfJobs = dict[tuple[str, str], list[Job]]
"""What the rows of some tables need, by the names of table and row."""


def reproduce(
    names: tuple[str, ...],
    /,
    *,
    rows: tuple[str, ...] = (),
    results: Path = Path("results"),
    data_dir: Path | None = None,
    device: str = "auto",
    dry: bool = False,
) -> None:
    """Run what is missing of a table, and show it.

    What was cut off goes on. Of several tables, runs that are alike train together.
    The end is a page beside the records, reports/NAME.html.

    Args:
        names: the table, or several tables of one task.
        rows: only rows with one of these names, or with this text in their names.
        results: folder of the records.
        data_dir: folder of the data; else $DCGRAPH_DATA, the cache, a download.
        device: auto, cpu, cuda.
        dry: only say what would run.
    """
    tables = [_table(name) for name in names]
    if len({table.task for table in tables}) > 1:
        raise CommandError(
            "tables of different tasks have no runs in common; reproduce them one after the other.",
            2,
        )
    _wanted(tables, results, rows)  # so that a mistake in rows is answered at once
    if dry:
        say_what_runs(tables, results, rows)
        return
    from ..engine.ranks import started_ranks  # start-up time: torch

    with started_ranks() as ranks:
        run_missing(tables, results, ranks, rows=rows, data_dir=data_dir, device=device)
    if not ranks.is_main:
        return
    task = get_task(tables[0].task)
    for table in tables:
        print(f"\n{as_text(table, results)}")
        page = results / "reports" / f"{table.name}.html"
        write_page(table, task, results, page)
        print(f"Report: {page}.", flush=True)


def run_missing(
    tables: Sequence[Table],
    results: Path,
    ranks: Ranks,
    *,
    rows: Sequence[str] = (),
    data_dir: Path | None = None,
    device: str = "auto",
) -> None:
    """Make the records that some tables of one task lack; what was cut off goes on.

    What depends on a choice runs when it can be made, after the runs that it is made from.
    """
    from ..engine.runs import perform  # start-up time: torch

    task = get_task(tables[0].task)
    on = ranks.by_each(partial(device_of_rank, device, ranks))
    if on.type == "cpu":
        keep_freed_memory()
    done: RowsOfJobs | None = None
    while (wanted := ranks.by_main(partial(_wanted, tables, results, rows))) != done:
        ranks.by_main(partial(say_what_runs, tables, results, rows))
        jobs = [job for of_row in wanted.values() for job in of_row]
        for _ in perform(
            *(task, jobs, _work(tables, results)),
            device=on,
            data_dir=data_dir,
            callbacks=show_progress,
            ranks=ranks,
        ):
            pass
        done = wanted


def _work(tables: Sequence[Table], results: Path) -> Path:
    """The folder of what is not yet finished."""
    return results / f".{'-'.join(table.name for table in tables)}"


def _wanted(tables: Sequence[Table], results: Path, rows: Sequence[str]) -> RowsOfJobs:
    """What the rows need; what two of them need is of the first."""
    names = list(dict.fromkeys(row.name for table in tables for row in table.rows))
    chosen = {name for text in rows for name in _named(names, text)} if rows else set(names)
    wanted: RowsOfJobs = {}
    seen: set[Path] = set()
    for table in tables:
        for row in table.rows:
            new = [job for job in jobs_of(table, row, results) if job.record not in seen]
            if row.name in chosen and new:
                wanted[table.name, row.name] = new
                seen.update(job.record for job in new)
    return wanted


def _named(names: Sequence[str], text: str) -> Sequence[str]:
    """The row of this name; without one, those that have the text in their names."""
    found = [name for name in names if name == text] or [name for name in names if text in name]
    if not found:
        known = ", ".join(map(repr, names))
        raise CommandError(f"no row has {shown(text)} in its name; there are {known}.", 2)
    return found


def say_what_runs(tables: Sequence[Table], results: Path, rows: Sequence[str] = ()) -> int:
    """What there is, what is to run, and how long it took before; gives how many runs that are."""
    wanted, names = _wanted(tables, results, rows), [table.name for table in tables]
    records = {job: finished_record(job) for jobs in wanted.values() for job in jobs}
    done = {job: record for job, record in records.items() if record}
    print(f"{', '.join(names)}: {len(records)} runs, {len(done)} have a record.")
    rows_with: dict[Settings, list[str]] = {}  # that are to run, and what needs them
    for (table, row), jobs in wanted.items():
        name = f"{table}: {row}" if len(tables) > 1 else row
        if line := _changes({job: done[job] for job in jobs if job in done}):
            print(f"  {name!r} {line}")
        for job in jobs:
            if job not in done:
                rows_with.setdefault(job.settings, []).append(name)
    groups = populations(list(rows_with))
    published = _published(wanted, results) if groups else {}
    lines: dict[str, list[str]] = {}
    differing: dict[str, list[Settings]] = defaultdict(list)
    for group in groups:
        size = "1 replica" if len(group) == 1 else f"{len(group)} replicas as one population"
        of_rows = ", ".join(map(repr, dict.fromkeys(r for one in group for r in rows_with[one])))
        line = f"  to run: {of_rows}; {size}, {_how_long(group[0], done, published)}"
        lines.setdefault(of_rows, []).append(line)
        differing[of_rows].append(group[0].structure())
    for of_rows, of_groups in lines.items():
        which = labels(differing[of_rows], between=", ")
        for line, kind in zip(of_groups, which, strict=True):
            print(f"{line}{f' ({kind})' if kind else ''}.")
    later = _later(tables, results, wanted)
    if later:
        print(f"  then: {later} runs with what the validation split chooses.")
    if any((work := _work(tables, results)).glob("*.pt")):
        print(f"  What was cut off before goes on from its checkpoint in {work}.")
    sys.stdout.flush()
    return len(rows_with) + later


def _later(tables: Sequence[Table], results: Path, wanted: RowsOfJobs) -> int:
    """How many runs depend on a choice that cannot be made yet."""
    chosen = {name for _, name in wanted}
    return sum(
        choice.fresh
        for table in tables
        for row in table.rows
        for choice in row.choices
        if row.name in chosen and choice.chosen(table.task, results) is None
    )


def _changes(records: Mapping[Job, Record]) -> str:
    """What the records of a row were made with, where the row asks for something else now."""
    found = {job: differences(record, job.settings) for job, record in records.items()}
    settings = dict(item for changed in found.values() for item in changed.items())
    if not settings:
        return ""
    said = ", ".join(f"{name} was {then}, is {now}" for name, (then, now) in settings.items())
    folders = dict.fromkeys(str(job.record.parent) for job, changed in found.items() if changed)
    where = " and ".join(folders)
    return f"has records of other settings: {said}; delete {where} to run it again."


def _how_long(
    settings: Settings, done: Mapping[Job, Record], published: Mapping[Job, Record]
) -> str:
    """What a population of this structure took before, by the records there are."""
    for records, when in ((done, "before"), (published, "for the published records")):
        for job, record in records.items():
            if job.settings.structure() == settings.structure():
                size, seconds = record.population.size, record.seconds
                return f"{size} took {seconds:.0f} s {when} on {record.hardware}"
    return "never run here before"


def _published(wanted: RowsOfJobs, results: Path) -> dict[Job, Record]:
    """The records of dcgraph itself for these jobs, which are elsewhere."""
    own = records_of_dcgraph()
    found: dict[Job, Record] = {}
    if own is None or own == results.resolve():
        return found
    for jobs in wanted.values():
        for job in jobs:
            path = own / job.record.relative_to(results)
            if path.exists():
                found[job] = read_record(path)
    return found


def write_page(table: Table, task: AnyTask, results: Path, page: Path) -> None:
    """The page of all runs of a table. Their models are not kept, so it shows none at work."""
    from ..report import Replica, write_report  # start-up time: torch and jinja2

    shown = []
    for row in table.rows:
        jobs = jobs_of(table, row, results)
        within = labels([job.settings for job in jobs])  # of a row with several settings
        for job, differing in zip(jobs, within, strict=True):
            if not job.record.exists():  # of a row that was not asked for
                continue
            group = f"{row.name}, {differing}" if differing else row.name
            shown.append(Replica(group, read_record(job.record), read_probes(job.record)))
    command = f"dcgraph reproduce {table.name}"
    write_report(page, task, shown, title=table.title.rstrip("."), command=command)


def table(
    name: str,
    /,
    *,
    part: str | None = None,
    results: Path | None = None,
    json_: bool = False,
    csv_: bool = False,
) -> None:
    """Show a table beside the paper's numbers.

    Args:
        name: the table.
        part: only these columns, for example sample or argmax (ListOps).
        results: folder of the records (default: results, or those that come with dcgraph).
        json_: print a list of cells instead: row, column, mean, std, seeds, paper.
        csv_: print them as CSV, for a spreadsheet.
    """
    chosen, results = _table(name, part), records_folder(results)
    cells = as_json(chosen, results)
    if not any(cell["seeds"] for cell in cells):
        raise CommandError(
            f"{str(results)!r} has no records of {name!r}; choose --results, "
            f"or run: dcgraph reproduce {name}"
        )
    if csv_:
        print(as_csv(chosen, results), end="", flush=True)
    else:
        print(json.dumps(cells, indent=1) if json_ else as_text(chosen, results), flush=True)


def _table(name: str, part: str | None = None) -> Table:
    try:
        whole = get_table(name)
        return whole if part is None else part_of(whole, part)
    except ValueError as error:
        raise CommandError(str(error), 2) from None
