"""Figure 6 of the paper: how much gradient reaches each round of messages, from records.

The probe reads the mean absolute gradient at the embedding and after each of the first four rounds,
at up to 30 moments of each run. The embedding is farthest from the loss. A look has one draw of the
DropRes gates, the same for all runs of a population.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from ..engine.records import Probes, Record
from ..tasks.listops.tables import ABLATION
from .runs import complete_records, run_of, with_probes
from .style import page, shades

PLACES = ("embedding", "round 1", "round 2", "round 3", "round 4")
RUNS = {  # by the name in the picture
    "with both": "paper-tau-1",
    "without TempMatch": "without-tempmatch",
    "without DropRes": "without-dropres",
    "without both": "without-both",
}
_STYLES = ("-", (0, (5, 1.5)), "-", (0, (5, 1.5)))
_Values = Sequence[Sequence[float]]


def compute(results: Path) -> dict[str, Any]:
    """Of every run the gradients at all places over training, ready for JSON."""
    settings = complete_records(ABLATION, run_of(ABLATION, RUNS["with both"]), results)[0].settings
    return {
        "figure": "gradients",
        "places": list(PLACES),
        "closed": 1 / (settings["alpha_step"] * settings["schedule_steps"]),  # epoch of alpha = 1
        "groups": [
            {
                "name": name,
                "runs": [
                    _read(*one) for one in with_probes(ABLATION, run_of(ABLATION, run), results)
                ],
            }
            for name, run in RUNS.items()
        ],
    }


def _read(record: Record, probes: Probes) -> dict[str, Any]:
    by_name = {
        step: {reading["name"]: reading["gradient"] for reading in readings}
        for step, readings in probes.items()
        if readings
    }
    return {
        "seed": record.seed,
        "epochs": [round(step / record.steps_per_epoch, 3) for step in by_name],
        "gradients": [[found[place] for place in PLACES] for found in by_name.values()],
    }


def draw(numbers: dict[str, Any], path: Path) -> None:
    """At the first look, at the last, and at the embedding over training."""
    colours = reversed(shades(len(RUNS)))
    with page(path, width=7.2, height=3.6) as figure:
        first, last, over_time = figure.subplots(1, 3, sharey=True)
        for group, colour, style in zip(numbers["groups"], colours, _STYLES, strict=True):
            look = {"color": colour, "linestyle": style, "label": group["name"], "linewidth": 1.8}
            _by_place(first, [run["gradients"][0] for run in group["runs"]], look)
            _by_place(last, [run["gradients"][-1] for run in group["runs"]], look)
            _by_time(over_time, group["runs"], look)
        epochs = numbers["groups"][0]["runs"][0]["epochs"]
        first.set_title(f"(a) after epoch {epochs[0]:.0f}")
        last.set_title(f"(b) after epoch {epochs[-1]:.0f}")
        over_time.set_title("(c) at the embedding")
        for axes in (first, last):
            axes.set_xticks(range(len(PLACES)), ["$x_e$", "1", "2", "3", "4"])
            axes.set_xlabel(r"embedding $x_e$, round $k$ $\to$ loss")
        over_time.axvline(numbers["closed"], color="grey", linestyle=":", linewidth=0.8, zorder=0)
        over_time.text(
            numbers["closed"], 0.02, " no residual\n from here on",
            transform=over_time.get_xaxis_transform(), color="dimgrey",
        )  # fmt: skip
        over_time.set_xlabel("epoch")
        first.set_yscale("log")
        first.set_ylabel("mean absolute gradient, median of 8 runs")
        handles, labels = first.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)


def _by_place(axes: Axes, runs: _Values, look: dict[str, Any]) -> None:
    """A thin line for each run, a thick one for the median."""
    for run in runs:
        axes.plot(run, linewidth=0.5, alpha=0.4, color=look["color"])
    axes.plot(_quantile(runs, 2), **look)


def _by_time(axes: Axes, runs: list[dict[str, Any]], look: dict[str, Any]) -> None:
    """The median, in a band from the lower to the upper quartile."""
    epochs, values = runs[0]["epochs"], [[at[0] for at in run["gradients"]] for run in runs]
    low, high = _quantile(values, 1), _quantile(values, 3)
    axes.fill_between(epochs, low, high, color=look["color"], alpha=0.15, linewidth=0)
    axes.plot(epochs, _quantile(values, 2), **look)


def _quantile(runs: _Values, quarter: int) -> list[float]:
    """Over runs, place by place or look by look."""
    return [
        statistics.quantiles(values, n=4, method="inclusive")[quarter - 1]
        for values in zip(*runs, strict=True)
    ]
