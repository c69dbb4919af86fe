"""Tables: rows of runs, filled from records, beside the numbers of the paper."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..._arguments import closest
from .records import Record
from .runs import Job, finished_record, label
from .settings import Settings
from .task import fingerprint_of

_LONGEST_NAME = 200

Published = tuple[float, float | None]
"""Mean and standard deviation, if that was published too."""


@dataclass(frozen=True)
class Row:
    """A row: one or several settings, each with ``seeds`` seeds, and what the paper says."""

    name: str
    settings: tuple[Settings, ...]
    seeds: int = 8
    paper: Mapping[str, Published] = field(default_factory=dict)  # by column


@dataclass(frozen=True)
class Column:
    """A column: a number from a record; None where the record says nothing of it."""

    name: str
    value: Callable[[Record], float | None]
    digits: int = 2
    spread: bool = True  # whether the standard deviation is shown


@dataclass(frozen=True)
class Table:
    name: str
    task: str
    title: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Cell:
    row: str
    column: str
    mean: float | None
    std: float | None
    seeds: int
    paper: Published | None


def part(table: Table, ending: str) -> Table:
    """The columns "NAME, ENDING" alone, as NAME: a table with few enough columns for a page."""
    endings = dict.fromkeys(c.name.rpartition(", ")[2] for c in table.columns if ", " in c.name)
    if ending not in endings:
        remedy = closest(ending, endings) if endings else "it has none at all, show the whole."
        raise ValueError(f"table {table.name!r} has no part {ending!r}; {remedy}")
    tail = f", {ending}"
    return replace(
        table,
        title=f"{table.title} By {ending}.",
        columns=tuple(
            replace(column, name=column.name.removesuffix(tail))
            for column in table.columns
            if column.name.endswith(tail)
        ),
        rows=tuple(
            replace(
                row,
                paper={
                    name.removesuffix(tail): published
                    for name, published in row.paper.items()
                    if name.endswith(tail)
                },
            )
            for row in table.rows
        ),
    )


def jobs(table: Table, results: Path) -> dict[str, list[Job]]:
    """Every replica that the table needs, by row. Tables with a row in common share its records."""
    return {
        row.name: [
            Job(
                replace(settings, seed=seed),
                _folder(settings, table, results) / f"seed-{seed}.json",
            )
            for settings in row.settings
            for seed in range(row.seeds)
        ]
        for row in table.rows
    }


def _folder(settings: Settings, table: Table, results: Path) -> Path:
    name = label(replace(settings, seed=0), [type(settings)()])
    if len(name) > _LONGEST_NAME:  # no file system takes any length
        name = f"{name[:_LONGEST_NAME]}_{fingerprint_of(name)}"
    return results / table.task / name


def cells(table: Table, results: Path) -> list[Cell]:
    """The table as a list of cells; a cell without records has no mean."""
    filled = []
    wanted = jobs(table, results)
    for row in table.rows:
        records = [record for job in wanted[row.name] if (record := finished_record(job))]
        for column in table.columns:
            filled.append(_cell(row, column, [column.value(record) for record in records]))
    return filled


def _cell(row: Row, column: Column, values: Sequence[float | None]) -> Cell:
    known = [value for value in values if value is not None]
    mean = round(statistics.fmean(known), 4) if known else None
    std = round(statistics.stdev(known), 4) if len(known) > 1 else None
    return Cell(row.name, column.name, mean, std, len(known), row.paper.get(column.name))


def as_json(table: Table, results: Path) -> list[dict[str, Any]]:
    return [asdict(cell) for cell in cells(table, results)]


def as_text(table: Table, results: Path) -> str:
    """A Markdown table that is aligned, so that a terminal shows it well too."""
    filled = {(cell.row, cell.column): cell for cell in cells(table, results)}
    with_paper = {c.name for c in table.columns if any(c.name in row.paper for row in table.rows)}
    header = [""]
    for column in table.columns:
        header += [column.name, "paper"] if column.name in with_paper else [column.name]
    lines = [header]
    for row in table.rows:
        line = [row.name]
        for column in table.columns:
            cell = filled[row.name, column.name]
            line.append(_spread(cell.mean, cell.std if column.spread else None, column.digits))
            if column.name in with_paper:
                line.append(_spread(*cell.paper, column.digits) if cell.paper else "")
        lines.append(line)
    by_row = [max(filled[row.name, c.name].seeds for c in table.columns) for row in table.rows]
    counts = sorted({seeds for seeds in by_row if seeds})
    return f"{table.title} {_made_of(counts)}\n\n{_align(lines)}"


def _spread(mean: float | None, std: float | None, digits: int) -> str:
    if mean is None:
        return ""
    return f"{mean:.{digits}f}" if std is None else f"{mean:.{digits}f} ± {std:.{digits}f}"


def _made_of(seeds: list[int]) -> str:
    """What the numbers are, from the different counts of seeds of the rows."""
    if not seeds:
        return "There are no records yet."
    if seeds == [1]:
        return "One seed a row."
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return f"Mean and standard deviation, {count} seeds a row."


def _align(lines: list[list[str]]) -> str:
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| "
        + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        + " |"
        for line in [lines[0], rule, *lines[1:]]
    )
