"""Figure 6 of the paper: how much gradient reaches each round of messages, from records.

The probe reads the mean absolute gradient at the embedding and after each of the first four rounds,
at up to 30 moments of each run. The embedding is farthest from the loss.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from ..tasks.listops.tables import ABLATION
from ..training.records import Record
from .runs import records_of
from .style import page, shades

PLACES = ("embedding", "round 1", "round 2", "round 3", "round 4")
_ROWS = {
    "with both": "Ours, tau 1",
    "without TempMatch": "without TempMatch (beta = 1)",
    "without DropRes": "without DropRes (alpha = 1)",
    "without both": "without both",
}
_STYLES = ("-", (0, (5, 1.5)), "-", (0, (5, 1.5)))


def compute(results: Path) -> dict[str, Any]:
    """Of every run the gradients at all places over training, ready for JSON."""
    return {
        "figure": "gradients",
        "places": list(PLACES),
        "groups": [
            {
                "name": name,
                "runs": [_run(record) for record in records_of(ABLATION, row, results)],
            }
            for name, row in _ROWS.items()
        ],
    }


def _run(record: Record) -> dict[str, Any]:
    per_epoch = record["steps"] / record["settings"]["epochs"]
    looks = [look for look in record["curve"] if look.get("probe")]
    by_name = [
        {reading["name"]: reading["gradient"] for reading in look["probe"]} for look in looks
    ]
    return {
        "seed": record["settings"]["seed"],
        "epochs": [round(look["step"] / per_epoch, 3) for look in looks],
        "gradients": [[found[place] for place in PLACES] for found in by_name],
    }


def draw(numbers: dict[str, Any], path: Path) -> None:
    """At the first look, at the last, and at the embedding over training."""
    light, dark = shades(3)[0], shades(3)[-1]
    colours = (dark, dark, light, light)
    with page(path, width=7.2, height=3.6) as figure:
        first, last, over_time = figure.subplots(1, 3)
        for group, colour, style in zip(numbers["groups"], colours, _STYLES, strict=True):
            look = {"color": colour, "linestyle": style}
            _by_place(first, group, 0, look)
            _by_place(last, group, -1, look)
            _by_time(over_time, group, look)
        epochs = numbers["groups"][0]["runs"][0]["epochs"]
        first.set_title(f"(a) after epoch {epochs[0]:.0f}")
        last.set_title(f"(b) after epoch {epochs[-1]:.0f}")
        over_time.set_title("(c) at the embedding")
        for axes in (first, last):
            axes.set_xticks(range(len(PLACES)), ["$x_e$", "1", "2", "3", "4"])
            axes.set_xlabel(r"embedding $x_e$, after round $k$")
            axes.set_yscale("log")
        last.sharey(first)
        over_time.set_yscale("log")
        over_time.set_xlabel("epoch")
        first.set_ylabel("mean absolute gradient, median of 8 runs")
        handles, labels = first.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)


def _by_place(axes: Axes, group: dict[str, Any], when: int, look: dict[str, Any]) -> None:
    runs = [run["gradients"][when] for run in group["runs"]]
    for run in runs:
        axes.plot(run, linewidth=0.4, alpha=0.5, **look)
    middle = [statistics.median(values) for values in zip(*runs, strict=True)]
    axes.plot(middle, label=group["name"], linewidth=1.8, **look)


def _by_time(axes: Axes, group: dict[str, Any], look: dict[str, Any]) -> None:
    runs = [[at[0] for at in run["gradients"]] for run in group["runs"]]
    middle = [statistics.median(values) for values in zip(*runs, strict=True)]
    axes.plot(group["runs"][0]["epochs"], middle, linewidth=1.8, **look)
