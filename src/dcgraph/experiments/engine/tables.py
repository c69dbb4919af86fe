"""Tables: rows of runs, filled from records, beside the numbers of the paper.

The records of a run are found by its name, ``results/TASK/RUN/seed-N.json``. So a default may
change, and no table does. Nothing here imports torch.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..._arguments import closest
from .metrics import Metric, mean_and_std, spread
from .records import Record, read_record
from .settings import Settings

Published = tuple[float, float | None]
"""Mean and standard deviation, if that was published too."""


@dataclass(frozen=True)
class Run:
    """Settings to train with ``seeds`` seeds, and the name under which their records are kept.

    Tables that need the same runs name the same.
    """

    name: str
    settings: Settings
    seeds: int = 8
    probes: bool = False  # whether a figure needs the probe curves, which are kept then
    categories: bool = False  # and whether it needs what the probe read of each category
    first: int = 0  # of the seeds

    @property
    def each_seed(self) -> range:
        return range(self.first, self.first + self.seeds)


@dataclass(frozen=True)
class Choice:
    """Runs of which the validation split chooses one, which then has ``fresh`` seeds more.

    What a table shows is the test of the fresh seeds. The first of equally good runs is chosen.
    """

    tried: tuple[Run, ...]
    fresh: int

    def fresh_runs(self) -> tuple[Run, ...]:
        """What each of the runs would be if it were chosen, in the same order."""
        return tuple(
            replace(run, first=run.first + run.seeds, seeds=self.fresh) for run in self.tried
        )

    def chosen(self, task: str, results: Path) -> Run | None:
        """With its fresh seeds; None as long as a record of those tried is missing."""
        means = []
        for run in self.tried:
            places = [record_of(run, seed, task, results) for seed in run.each_seed]
            if not all(place.exists() for place in places):
                return None
            means.append(statistics.fmean(read_record(place).score() for place in places))
        return self.fresh_runs()[means.index(max(means))]


@dataclass(frozen=True, eq=False)
class Column:
    """A column: a number from a record; None where the record says nothing of it."""

    name: str
    value: Callable[[Record], float | None]
    part: str = ""  # which part of a wide table it belongs to, such as "sample" or "argmax"
    digits: int = 2
    spread: bool = True  # whether the standard deviation is shown

    @property
    def title(self) -> str:
        return f"{self.name}, {self.part}" if self.part else self.name


@dataclass(frozen=True)
class Row:
    """A row: one run or several, and what the paper says."""

    name: str
    runs: tuple[Run, ...]
    paper: Mapping[Column, Published] = field(default_factory=dict)
    given: str = ""  # what the model is given, where rows differ in that
    choices: tuple[Choice, ...] = ()  # runs of which the row has those that are chosen

    def shown_runs(self, task: str, results: Path) -> tuple[Run, ...]:
        """The runs whose records fill the row; those chosen, as far as they are."""
        chosen = (choice.chosen(task, results) for choice in self.choices)
        return (*self.runs, *(run for run in chosen if run is not None))

    def needed_runs(self, task: str, results: Path) -> tuple[Run, ...]:
        """The same, and those that they are chosen of."""
        tried = (run for choice in self.choices for run in choice.tried)
        return (*tried, *self.shown_runs(task, results))

    def possible_runs(self) -> tuple[Run, ...]:
        """All that it may need, whatever is chosen."""
        of_choices = (run for one in self.choices for run in (*one.tried, *one.fresh_runs()))
        return (*self.runs, *of_choices)


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


def per_cent(metric: Metric) -> Callable[[Record], float | None]:
    """A column's value: a final metric, in per cent."""
    return lambda record: times_100(record.value(metric))


def times_100(value: float | None) -> float | None:
    return None if value is None else 100 * value


def part(table: Table, name: str) -> Table:
    """Only the columns of one part: a table with few enough columns for a page."""
    parts = dict.fromkeys(column.part for column in table.columns if column.part)
    if name not in parts:
        remedy = closest(name, parts) if parts else "it has none at all, show the whole."
        raise ValueError(f"table {table.name!r} has no part {name!r}; {remedy}")
    kept = {column: replace(column, part="") for column in table.columns if column.part == name}
    return replace(
        table,
        title=f"{table.title} By {name}.",
        columns=tuple(kept.values()),
        rows=tuple(
            replace(row, paper={kept[c]: said for c, said in row.paper.items() if c in kept})
            for row in table.rows
        ),
    )


def record_of(run: Run, seed: int, task: str, results: Path) -> Path:
    """Where the record of a run is."""
    return results / task / run.name / f"seed-{seed}.json"


def records_of(table: Table, row: Row, results: Path) -> list[Record]:
    """The records there are, run by run and seed by seed."""
    return [read_record(place) for place in _found(table, row, results)]


def _found(table: Table, row: Row, results: Path) -> list[Path]:
    places = (
        record_of(run, seed, table.task, results)
        for run in row.shown_runs(table.task, results)
        for seed in run.each_seed
    )
    return [place for place in places if place.exists()]


def was_run(table: Table, row: Row, results: Path) -> bool:
    """Whether there is any record of a row."""
    return bool(_found(table, row, results))


def cells(table: Table, results: Path) -> list[Cell]:
    """The table as a list of cells; a cell without records has no mean."""
    filled = []
    for row in table.rows:
        records = records_of(table, row, results)
        for column in table.columns:
            filled.append(_cell(row, column, [column.value(record) for record in records]))
    return filled


def _cell(row: Row, column: Column, values: Sequence[float | None]) -> Cell:
    mean, std = (None if x is None else round(x, 4) for x in mean_and_std(values))
    seeds = sum(value is not None for value in values)
    return Cell(row.name, column.title, mean, std, seeds, row.paper.get(column))


def as_json(table: Table, results: Path) -> list[dict[str, Any]]:
    return [asdict(cell) for cell in cells(table, results)]


def as_csv(table: Table, results: Path) -> str:
    """A line for each cell that has a number, ours or the paper's."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(["row", "column", "mean", "std", "seeds", "paper", "paper std", "given"])
    given = {row.name: row.given for row in table.rows}
    for cell in cells(table, results):
        if cell.mean is not None or cell.paper:
            numbers = (cell.mean, cell.std, cell.seeds, *(cell.paper or (None, None)))
            writer.writerow([cell.row, cell.column, *numbers, given[cell.row]])
    return lines.getvalue()


def as_text(table: Table, results: Path) -> str:
    """A Markdown table that is aligned, so that a terminal shows it well too.

    A row without any record says so in its first column: the paper's numbers are all it has.
    """
    filled = {(cell.row, cell.column): cell for cell in cells(table, results)}
    with_paper = {column for row in table.rows for column in row.paper}
    notes = any(row.given for row in table.rows)
    header = [""]
    for column in table.columns:
        header += [column.title, "paper"] if column in with_paper else [column.title]
    lines = [[*header, "given"] if notes else header]
    for row in table.rows:
        line = [row.name]
        for column in table.columns:
            cell, write = filled[row.name, column.title], f"{{:.{column.digits}f}}".format
            line.append(spread(cell.mean, cell.std if column.spread else None, write))
            if column in with_paper:
                line.append(spread(*cell.paper, write) if cell.paper else "")
        if not was_run(table, row, results):
            line[1] = "not run"
        lines.append([*line, row.given] if notes else line)
    return f"{table.title} {made_of(filled.values())}\n\n{as_markdown(lines)}"


def made_of(filled: Iterable[Cell]) -> str:
    """What the numbers of some cells are, from the different counts of seeds of the rows."""
    by_row: dict[str, int] = {}
    for cell in filled:
        by_row[cell.row] = max(cell.seeds, by_row.get(cell.row, 0))
    seeds = sorted({count for count in by_row.values() if count})
    if not seeds:
        return "There are no records yet."
    if seeds == [1]:
        return "One seed a row."
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return f"Mean and standard deviation, {count} seeds a row."


def as_markdown(lines: list[list[str]]) -> str:
    """A header and rows as a Markdown table, aligned."""
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| "
        + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        + " |"
        for line in [lines[0], rule, *lines[1:]]
    )
