"""Every gradient estimator on the tasks, with and without DropRes and TempMatch, from records."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from ..engine.comparison import METHODS, Comparison, method_of
from ..engine.errors import RecordError
from ..engine.tables import records_of
from ..tasks.addition.tables import COMPARISON as ADDITION
from ..tasks.listops.tables import COMPARISON as LISTOPS
from ..tasks.paths.tables import COMPARISON as PATHS
from .style import page, shades

COMPARED = {"sums of three digits": ADDITION, "short ListOps": LISTOPS, "paths of UMLS": PATHS}
_MARKERS = "os^D"
_APART = 0.19  # the marks of an estimator, in rows
_ROW, _REST, _LEAST = 0.31, 1.0, 3.6  # inches


def compute(results: Path) -> dict[str, Any]:
    """The test of every fresh seed, ready for JSON; tasks without any record are left out."""
    tasks = [
        found
        for name, comparison in COMPARED.items()
        if (found := _task(name, comparison, results))["estimators"]
    ]
    if not tasks:
        raise RecordError(
            f"{str(results)!r} has no records of estimators; choose --results, or run: dcgraph "
            "compare"
        )
    return {"figure": "estimators", "methods": list(METHODS), "tasks": tasks}


def _task(name: str, comparison: Comparison, results: Path) -> dict[str, Any]:
    table = comparison.estimators()
    estimators: dict[str, dict[str, list[float]]] = {}
    for row in table.rows:
        for record in records_of(table, row, results):
            of_method = estimators.setdefault(row.name, {method: [] for method in METHODS})
            of_method[method_of(record.settings)].append(record.value(comparison.metric) or 0.0)
    return {"task": name, "metric": comparison.metric.name, "estimators": estimators}


def draw(numbers: dict[str, Any], path: Path) -> None:
    """A panel for each task, a row for each estimator; a dot for each run behind its mean."""
    tasks = numbers["tasks"]
    names = list(dict.fromkeys(name for task in tasks for name in task["estimators"]))
    with page(path, width=7.2, height=max(_LEAST, _REST + _ROW * len(names))) as figure:
        panels = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
        for letter, task, axes in zip("abc", tasks, panels, strict=False):
            _draw_task(axes, task, names)
            axes.set_title(f"({letter}) {task['task']}")
            axes.set_xlabel(task["metric"])
        panels[0].set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
        panels[0].set_ylim(len(names) - 0.5, -0.5)
        figure.legend(
            handles=panels[0].get_legend_handles_labels()[0],
            loc="outside lower center",
            ncols=len(METHODS),
        )


def _draw_task(axes: Axes, task: dict[str, Any], names: list[str]) -> None:
    for row in range(1, len(names), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="0.95", linewidth=0)
    looks = zip(METHODS, shades(len(METHODS)), _MARKERS, strict=True)
    for k, (method, colour, marker) in enumerate(looks):
        rows, means, spreads = [], [], []
        for row, name in enumerate(names):
            runs = task["estimators"].get(name, {}).get(method, [])
            if not runs:
                continue
            place = row + _APART * (k - (len(METHODS) - 1) / 2)
            axes.plot(runs, [place] * len(runs), ".", color=colour, markersize=2.5, alpha=0.6)
            rows.append(place)
            means.append(statistics.fmean(runs))
            spreads.append(statistics.stdev(runs) if len(runs) > 1 else 0.0)
        axes.errorbar(
            means, rows, xerr=spreads, fmt=marker, color=colour, markersize=3.8, elinewidth=0.9,
            label=method,
        )  # fmt: skip
    axes.tick_params(axis="y", length=0)
