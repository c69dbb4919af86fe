"""The numbers on the page of a run: what came out, and what it was made with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..engine.metrics import in_words, layout, mean_and_std, measured_as, measured_on, spread
from ..engine.records import Record
from .groups import Group, Replica, monitored, selected_on


def facts_of(groups: Sequence[Group]) -> list[str]:
    """A line of numbers under the title."""
    records = _records(groups)
    populations = {record.population.name: record for record in records}.values()
    seconds = sum(record.seconds for record in populations)
    steps = sorted({record.steps for record in records})
    return [
        _count(len(records), "replica") + (f" of {len(groups)} kinds" if len(groups) > 1 else ""),
        (f"{steps[0]:,} to " if len(steps) > 1 else "") + f"{steps[-1]:,} steps",
        _count(len(populations), "population"),
        f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min",
        ", ".join(sorted({record.hardware for record in records})),
        ", ".join(f"{count:,} parameters" for count in sorted({r.parameters for r in records})),
    ]


def _records(groups: Sequence[Group]) -> list[Record]:
    return [replica.record for group in groups for replica in group.replicas]


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def summary_of(groups: Sequence[Group]) -> dict[str, Any]:
    """Final metrics of every group, mean and spread: the monitored one, then all in detail."""
    shown = monitored(groups)
    grid = layout(metric for record in _records(groups) for metric in record.metrics)
    main = [m for (row, _), m in grid.cells.items() if row == measured_on(shown)]
    rows, details = [], []
    for group in groups:
        records = [replica.record for replica in group.replicas]
        every = sorted((v for r in records if (v := r.value(shown)) is not None), reverse=True)
        named = {"name": group.name, "number": group.number}
        cells = [_spread([record.value(metric) for record in records]) for metric in main]
        rows.append(
            {**named, "replicas": len(records), "cells": cells, "every": list(map(_digits, every))}
        )
        filled = [
            (
                row,
                [
                    _spread([r.value(metric) for r in records]) if metric else ""
                    for metric in (grid.cells.get((row, column)) for column in grid.columns)
                ],
            )
            for row in grid.rows
        ]
        details.append({**named, "rows": filled})
    return {
        "names": [", ".join(filter(None, (m.name, measured_as(m)))) for m in main],
        "rows": rows,
        "columns": grid.columns,
        "details": details if len(grid.rows) > 1 else [],
        "monitored": in_words(shown),
        "selected_on": selected_on(groups),
    }


def _spread(values: Sequence[float | None]) -> str:
    return spread(*mean_and_std(values), _digits) or "-"


def _digits(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.4g}"


def stopped_of(replicas: Sequence[Replica]) -> list[str]:
    return [
        f"{replica.group}, seed {replica.record.seed}: its loss or gradient was not finite at step "
        f"{replica.record.stopped_at:,}; it stopped there."
        for replica in replicas
        if replica.record.stopped_at is not None
    ]


def settings_of(groups: Sequence[Group]) -> dict[str, Any]:
    """What all groups have in common, what they differ in, and where the numbers come from."""
    values = [asdict(group.settings) for group in groups]
    differing = [n for n in values[0] if n != "seed" and len({str(v[n]) for v in values}) > 1]
    records = _records(groups)

    def all_of(name: str) -> str:
        return ", ".join(sorted({str(getattr(record, name)) for record in records}))

    return {
        "common": [(n, v) for n, v in values[0].items() if n not in (*differing, "seed")],
        "differing": differing,
        "by_group": [
            (group.name, [value[name] for name in differing])
            for group, value in zip(groups, values, strict=True)
        ],
        "seeds": _ranges(sorted({record.seed for record in records})),
        "origin": [
            ("dcgraph", all_of("code")),
            ("torch", all_of("torch")),
            ("hardware", all_of("hardware")),
            ("data, fingerprint", all_of("data")),
            ("populations", ", ".join(sorted({r.population.name for r in records}))),
        ],
    }


def _ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers, runs of them as ranges.

    >>> _ranges([0, 1, 2, 5, 7, 8])
    '0 to 2, 5, 7 to 8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]} to {r[-1]}" for r in runs)
