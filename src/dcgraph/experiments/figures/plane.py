"""The plane of beta and tau on the tasks, and TempMatch's way along its diagonal, from records."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from ..._arguments import EstimatorName
from ..engine.comparison import BETAS, PLANE, PLANE_BETAS, PLANE_TAUS, Comparison, plane_run
from ..engine.errors import RecordError
from ..engine.records import read_record
from ..engine.tables import record_of
from .estimators import COMPARED
from .style import heat, page

_GAP = 0.4  # between the plane and the column of TempMatch, in cells
_HEIGHT, _REST = 1.75, 0.55  # inches, of a task


def compute(results: Path) -> dict[str, Any]:
    """The mean test of the runs at each point, ready for JSON; None where there are none yet.

    Tasks without any record are left out.
    """
    tasks = [_task(name, comparison, results) for name, comparison in COMPARED.items()]
    tasks = [
        task
        for task in tasks
        if any(
            value is not None for rows in task["planes"].values() for row in rows for value in row
        )
    ]
    if not tasks:
        raise RecordError(
            f"{str(results)!r} has no records of the plane; choose --results, or run: dcgraph "
            "compare plane"
        )
    return {"figure": "plane", "taus": PLANE_TAUS, "betas": PLANE_BETAS, "tasks": tasks}


def _task(name: str, comparison: Comparison, results: Path) -> dict[str, Any]:
    planes = {
        part: [[_mean(comparison, e, tau, beta, results) for beta in BETAS] for tau in PLANE_TAUS]
        for part, e in PLANE.items()
    }
    return {"task": name, "metric": comparison.metric.name, "planes": planes}


def _mean(
    comparison: Comparison,
    estimator: EstimatorName,
    tau: float,
    beta: float | None,
    results: Path,
) -> float | None:
    run = plane_run(comparison.settings, estimator, tau, beta)
    places = (record_of(run, seed, comparison.task, results) for seed in run.each_seed)
    records = [read_record(place) for place in places if place.exists()]
    if not records:
        return None
    return round(statistics.fmean(one.value(comparison.metric) or 0.0 for one in records), 4)


def draw(numbers: dict[str, Any], path: Path) -> None:
    """A row for each task, the relaxed choice on the left and the hard one on the right."""
    tasks = numbers["tasks"]
    with page(path, width=7.2, height=_REST + _HEIGHT * len(tasks)) as figure:
        panels = figure.subplots(len(tasks), len(PLANE), squeeze=False)
        for task, of_task in zip(tasks, panels, strict=True):
            shown = [v for rows in task["planes"].values() for row in rows for v in row]
            known = [value for value in shown if value is not None]
            for (part, rows), axes in zip(task["planes"].items(), of_task, strict=True):
                _draw_plane(axes, rows, numbers["taus"], numbers["betas"], min(known), max(known))
                axes.set_title(f"{task['task']}, {part}: {task['metric']} in per cent")
        for axes in panels[-1]:
            axes.set_xlabel("beta, constant or growing to tau (right)")
        for axes in panels[:, 0]:
            axes.set_ylabel("tau")


def _draw_plane(
    axes: Axes,
    rows: list[list[float | None]],
    taus: Sequence[float],
    betas: Sequence[float],
    low: float,
    high: float,
) -> None:
    colours, span = heat(), max(high - low, 1e-9)
    columns = [*range(len(betas)), len(betas) + _GAP]
    for y, (tau, row) in enumerate(zip(taus, rows, strict=True)):
        for x, beta, value in zip(columns, [*betas, None], row, strict=True):
            shade = "white" if value is None else colours((value - low) / span)
            corner = (x - 0.5, y - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, facecolor=shade, edgecolor="white"))
            text = "" if value is None else f"{100 * value:.0f}"
            axes.text(x, y, text, ha="center", va="center")
            if beta == tau:
                inside = (x - 0.45, y - 0.45)
                frame = Rectangle(inside, 0.9, 0.9, fill=False, edgecolor="black", linewidth=1.2)
                axes.add_patch(frame)
    axes.set_xlim(-0.5, columns[-1] + 0.5)
    axes.set_ylim(-0.5, len(taus) - 0.5)  # tau upwards, as beta to the right
    axes.set_xticks(columns, [*(f"{beta:g}" for beta in betas), "TempMatch"])
    axes.set_yticks(range(len(taus)), [f"{tau:g}" for tau in taus])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
