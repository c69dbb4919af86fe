"""What a run says at its end."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ..engine import Settings, Task
from ..engine.records import read_record
from ..engine.runs import Job, label


def results_of(task: Task, jobs: Sequence[Job], replicas: Sequence[Settings]) -> str:
    """Mean and spread on the test set, for each setting."""
    groups: dict[str, list[dict[str, float | None]]] = {}
    for job in jobs:
        record = read_record(job.record)
        groups.setdefault(label(job.settings, replicas), []).append(
            {**record["test"], **record["readout"]}
        )
    chosen_on = read_record(jobs[0].record)["chosen_on"]
    lines = [f"On the test set, with the weights that were best on the {chosen_on} set:"]
    for name, tests in groups.items():
        alone, grid = task.arranged(tests[0])
        parts = [f"{metric} {cell}" for metric in alone if (cell := _spread(tests, metric))]
        prefix = f"  {name}: " if len(groups) > 1 else "  "
        lines.append(prefix + ", ".join(parts))
        rows = [[row, *(_spread(tests, n) for n in of.values())] for row, of in grid.items()]
        if rows:
            lines += _aligned([["", *next(iter(grid.values()))], *rows])
    return "\n".join(lines)


def _spread(tests: Sequence[dict[str, float | None]], metric: str) -> str:
    """Mean and standard deviation of what is known; nothing, if nothing is."""
    values = [value for test in tests if (value := test.get(metric)) is not None]
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4f}{spread}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: what is in a row to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "    "
        + "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
