"""What came out of a run, in numbers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from ..engine.task import Task
from .groups import Group, Replica, metric_of


def facts_of(groups: Sequence[Group]) -> list[str]:
    """A line of numbers under the title."""
    records = [replica.record for group in groups for replica in group.replicas]
    populations = {record["population"]["name"]: record for record in records}.values()
    seconds = sum(record["seconds"] for record in populations)
    steps = sorted({record["steps"] for record in records})
    return [
        _count(len(records), "replica") + (f" of {len(groups)} kinds" if len(groups) > 1 else ""),
        (f"{steps[0]:,} to " if len(steps) > 1 else "") + f"{steps[-1]:,} steps",
        _count(len(populations), "population"),
        f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min",
        ", ".join(sorted({record["hardware"] for record in records})),
        ", ".join(f"{count:,} parameters" for count in sorted({r["parameters"] for r in records})),
    ]


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def summary_of(groups: Sequence[Group], task: Task) -> dict[str, Any]:
    """Test metrics of every group: mean, spread; and the best and worst of the monitored one."""
    monitored = f"{metric_of(groups, task)}/argmax"
    measured = [
        [{**replica.record["test"], **replica.record["readout"]} for replica in group.replicas]
        for group in groups
    ]
    records = [replica.record for group in groups for replica in group.replicas]
    parts = ("test", "readout")
    names = list(dict.fromkeys(name for part in parts for r in records for name in r[part]))
    alone, grid = task.arranged(names)
    rows, details = [], []
    for group, tests in zip(groups, measured, strict=True):
        cells = [_spread([test.get(name) for test in tests]) for name in alone]
        every = sorted((t[monitored] for t in tests if t.get(monitored) is not None), reverse=True)
        rows.append(
            {
                "name": group.name,
                "number": group.number,
                "replicas": len(tests),
                "cells": cells,
                "every": [_digits(value) for value in every],
            }
        )
        filled = [
            (_words(row), [_spread([test.get(name) for test in tests]) for name in of.values()])
            for row, of in grid.items()
        ]
        details.append({"name": group.name, "number": group.number, "rows": filled})
    chosen_on = {r["chosen_on"] for r in records} - {None}
    return {
        "names": [_words(name) for name in alone],
        "rows": rows,
        "columns": [_words(name) for name in next(iter(grid.values()), ())],
        "details": details if grid else [],
        "monitored": _words(monitored),
        "chosen_on": " or ".join(sorted(chosen_on)) or "validation",
    }


def _words(name: str) -> str:
    return name.replace("/", ", ")


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    mean = _digits(statistics.fmean(known))
    return mean if len(known) == 1 else f"{mean} ± {_digits(statistics.stdev(known))}"


def _digits(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.4g}"


def stopped_of(replicas: Sequence[Replica]) -> list[str]:
    return [
        f"{replica.group}, seed {replica.record['settings']['seed']}: its loss or gradient was not "
        f"finite at step {replica.record['stopped_at']:,}; it stopped there."
        for replica in replicas
        if replica.record["stopped_at"] is not None
    ]
