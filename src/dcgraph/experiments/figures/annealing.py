"""Figures 4 (left and middle), 7 and 8 of the paper: ways to set tau and beta, from records.

Base keeps tau = 8 and beta = 1. TauAnn lets tau fall from 8 to 1. TempMatch lets beta grow from 0
towards tau. Nine runs each, none dropped, for two summands and for the chain of three, and all of
it with DropRes too, which the paper does not show.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from ..engine.metrics import Metric
from ..engine.records import Record
from ..engine.tables import Run
from ..tasks.addition.tables import ANNEALING, SCHEMES, annealing_row, epoch_of
from .runs import complete_records
from .style import page, shades

LEVELS = (0.9, 0.97)
SUMMANDS = (2, 3)
_LATEST = 2  # runs shown of those that reached the first level last
_STYLES = {"base": (0, (1, 1.2)), "TauAnn": (0, (4, 1.5)), "TempMatch": "-"}


HELD_OUT = Metric("accuracy", "validation")


def run_with(summands: int, dropres: bool, scheme: str) -> Run:
    """The run of a scheme."""
    (run,) = annealing_row(summands, dropres, scheme).runs
    return run


def compute(results: Path) -> dict[str, Any]:
    """The learning curves of all runs on held-out examples, ready for JSON."""
    return {
        "figure": "annealing",
        "levels": list(LEVELS),
        "groups": [
            {
                "summands": summands,
                "dropres": dropres,
                "scheme": scheme,
                "runs": [
                    _run(record)
                    for record in complete_records(
                        ANNEALING, run_with(summands, dropres, scheme), results
                    )
                ],
            }
            for summands in SUMMANDS
            for dropres in (False, True)
            for scheme in SCHEMES
        ],
    }


def _run(record: Record) -> dict[str, Any]:
    return {
        "seed": record.seed,
        "epochs": [round(step / record.steps_per_epoch, 3) for step in record.curve.step],
        "accuracy": record.curve.metrics[HELD_OUT],
        "reached": [epoch_of(record, level) for level in LEVELS],
    }


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Means over the runs, and the runs that came late; above without DropRes, below with it."""
    with page(path, width=7.2, height=4.4) as figure:
        panels = figure.subplots(2, 3, sharex=True, sharey=True)
        for row, dropres in enumerate((False, True)):
            two, late, three = panels[row]
            _draw_means(two, _schemes(numbers, 2, dropres))
            _draw_latest(late, _schemes(numbers, 2, dropres), numbers["levels"])
            _draw_means(three, _schemes(numbers, 3, dropres))
            two.set_ylabel("with DropRes" if dropres else "without DropRes")
        titles = ("(a) 2 summands, mean", "(b) 2 summands, latest runs", "(c) 3 summands, mean")
        for axes, title in zip(panels[0], titles, strict=True):
            axes.set_title(title)
        for axes in panels[1]:
            axes.set_xlabel("epoch")
        panels[0, 0].set_ylim(0, 1.02)
        panels[0, 0].set_xlim(0, max(numbers["groups"][0]["runs"][0]["epochs"]))
        figure.supylabel("accuracy on held-out examples", size=8)
        panels[0, 2].legend(loc="upper left", title=None)


def _schemes(numbers: dict[str, Any], summands: int, dropres: bool) -> dict[str, list[Any]]:
    return {
        group["scheme"]: group["runs"]
        for group in numbers["groups"]
        if (group["summands"], group["dropres"]) == (summands, dropres)
    }


def _draw_means(axes: Axes, schemes: dict[str, list[Any]]) -> None:
    """The mean of the runs, and a band from the lower to the upper quartile."""
    for (scheme, runs), colour in zip(schemes.items(), shades(len(schemes)), strict=True):
        curves = list(zip(*(_accuracies(run) for run in runs), strict=True))
        epochs = runs[0]["epochs"]
        quartiles = [statistics.quantiles(values, n=4, method="inclusive") for values in curves]
        low, high = [q[0] for q in quartiles], [q[2] for q in quartiles]
        axes.fill_between(epochs, low, high, color=colour, alpha=0.15, linewidth=0)
        mean = [statistics.fmean(values) for values in curves]
        axes.plot(epochs, mean, color=colour, linestyle=_STYLES[scheme], label=scheme)


def _accuracies(run: dict[str, Any]) -> list[float]:
    """Of a run that stopped, because its loss was not finite, 0 from there on."""
    return [value or 0.0 for value in run["accuracy"]]


def _draw_latest(axes: Axes, schemes: dict[str, list[Any]], levels: Sequence[float]) -> None:
    """The runs of both annealed schemes that reached the first level last."""
    colours = dict(zip(schemes, shades(len(schemes)), strict=True))
    for scheme in ("TauAnn", "TempMatch"):
        for run in _latest(schemes[scheme]):
            axes.plot(
                run["epochs"], run["accuracy"], color=colours[scheme], linestyle=_STYLES[scheme]
            )
    done = max((run["reached"][-1] or 0.0 for run in _latest(schemes["TempMatch"])), default=0.0)
    if done:
        axes.axvline(done, color="0.5", linestyle=":", linewidth=1.0)
        axes.text(done + 0.4, 0.06, f"TempMatch: {levels[-1]:g}", size=7, color="0.3")


def _latest(runs: list[Any]) -> list[Any]:
    arrived = [run for run in runs if run["reached"][0] is not None]
    return sorted(arrived, key=lambda run: -run["reached"][0])[:_LATEST]


def draw_runs(numbers: dict[str, Any], path: Path) -> None:
    """Every run, one panel for each scheme."""
    rows = [(summands, dropres) for summands in SUMMANDS for dropres in (False, True)]
    with page(path, width=7.2, height=6.4) as figure:
        panels = figure.subplots(len(rows), len(SCHEMES), sharex=True, sharey=True)
        for axes_of_row, (summands, dropres) in zip(panels, rows, strict=True):
            schemes = _schemes(numbers, summands, dropres)
            for axes, runs in zip(axes_of_row, schemes.values(), strict=True):
                for run, colour in zip(runs, shades(len(runs)), strict=True):
                    axes.plot(run["epochs"], run["accuracy"], color=colour, linewidth=0.9)
                axes.text(
                    0.97, 0.05, _arrivals(runs, numbers["levels"]),
                    transform=axes.transAxes, ha="right", size=7,
                )  # fmt: skip
            residual = ", DropRes" if dropres else ""
            axes_of_row[0].set_ylabel(f"{summands} summands{residual}")
        panels[0, 0].set_ylim(0, 1.02)
        panels[0, 0].set_xlim(0, max(numbers["groups"][0]["runs"][0]["epochs"]))
        for axes, scheme in zip(panels[0], SCHEMES, strict=True):
            axes.set_title(scheme)
        for axes in panels[-1]:
            axes.set_xlabel("epoch")
        figure.supylabel("accuracy on held-out examples", size=8)


def _arrivals(runs: list[Any], levels: Sequence[float]) -> str:
    lines = []
    for k, level in enumerate(levels):
        arrived = [run["reached"][k] for run in runs if run["reached"][k] is not None]
        when = f", epoch {min(arrived):.1f} to {max(arrived):.1f}" if arrived else ""
        lines.append(f"{level:g}: {len(arrived)} of {len(runs)}{when}")
    return "\n".join(lines)
