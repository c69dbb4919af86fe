"""Figure 4 (right) of the paper: a category that came into use late, from records.

Its share z_j in the relaxed choices is small, and so is the gradient at theta_j, for it is at most
sqrt(2) / tau |dL/dz| z_j. So nothing pulls the category up until noise does; then it takes over the
images of a digit, and the accuracy jumps to the next plateau.

The run is the TempMatch run without DropRes that reached an accuracy of 0.9 last; the category is
the one of its categories in use that came to half of its last share last. Below, the base run that
ended lowest, and the category that it uses least.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..engine.records import Record
from ..tasks.addition.tables import epoch_of
from .annealing import LEVELS, runs_of
from .style import page, shades

_IN_USE = 0.02  # share of the images that get the category in the end, at least


def compute(results: Path) -> dict[str, Any]:
    """Accuracy, z_j and |dL/dtheta_j| over training, ready for JSON."""
    matched = runs_of(results, 2, dropres=False, scheme="TempMatch")
    base = runs_of(results, 2, dropres=False, scheme="base")
    last = max(matched, key=lambda record: epoch_of(record, LEVELS[0]) or 0.0)
    lowest = min(base, key=lambda record: record["curve"][-1]["accuracy/argmax"] or 0.0)
    return {
        "figure": "category",
        "runs": [_story("TempMatch", last, found_last), _story("base", lowest, least_used)],
    }


def _story(
    scheme: str, record: Record, choose: Callable[[list[list[float]], list[float]], int]
) -> dict[str, Any]:
    per_epoch = record["steps"] / record["settings"]["epochs"]
    probed = [look for look in record["curve"] if "probe" in look]
    readings = [look["probe"][0]["by_category"] for look in probed]  # the node that reads images
    weights = [reading["weight"] for reading in readings]
    return {
        "scheme": scheme,
        "seed": record["settings"]["seed"],
        "category": choose(weights, readings[-1]["use"]),
        "in_use": [j for j, share in enumerate(readings[-1]["use"]) if share >= _IN_USE],
        "epochs": [round(look["step"] / per_epoch, 3) for look in record["curve"]],
        "accuracy": [look["accuracy/argmax"] for look in record["curve"]],
        "probed": [round(look["step"] / per_epoch, 3) for look in probed],
        "weight": weights,
        "gradient": [reading["gradient"] for reading in readings],
    }


def found_last(weights: list[list[float]], use: list[float]) -> int:
    """Of the categories in use in the end, the last to come to half of its last share.

    >>> found_last([[0.5, 0.5, 0.0], [0.5, 0.4, 0.1], [0.3, 0.3, 0.4]], use=[0.5, 0.0, 0.5])
    2
    """

    def came(category: int) -> int:
        half = weights[-1][category] / 2
        return next(k for k, row in enumerate(weights) if row[category] >= half)

    return max((j for j, share in enumerate(use) if share >= _IN_USE), key=came)


def least_used(weights: list[list[float]], use: list[float]) -> int:
    """The category with the smallest share in the end."""
    return min(range(len(use)), key=lambda j: weights[-1][j])


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Draw what :func:`compute` returned: a row for each run."""
    runs = numbers["runs"]
    with page(path, width=7.2, height=2.1 * len(runs)) as figure:
        panels = figure.subplots(len(runs), 3, sharex=True, sharey="col")
        for axes_of_row, run, letters in zip(panels, runs, ("abc", "def"), strict=True):
            _draw_run(axes_of_row, run, letters)
        for axes in panels[-1]:
            axes.set_xlabel("epoch")
        key = "orange: in use at the end\ngrey: not"
        panels[0, 1].text(0.04, 0.05, key, transform=panels[0, 1].transAxes, size=7)
        panels[0, 0].set_ylim(0, 1.02)
        panels[0, 0].set_xlim(0, runs[0]["epochs"][-1])


def _draw_run(panels: Any, run: dict[str, Any], letters: str) -> None:
    """The accuracy, then z and the gradient of all categories, one of them bold."""
    accuracy, weight, gradient = panels
    j, categories = run["category"], len(run["weight"][0])
    accuracy.plot(run["epochs"], run["accuracy"], color="0.2")
    accuracy.set_title(f"({letters[0]}) {run['scheme']}, seed {run['seed']}")
    accuracy.set_ylabel("accuracy")
    in_use = f"{len(run['in_use'])} of {categories} categories in use"
    accuracy.text(0.96, 0.06, in_use, transform=accuracy.transAxes, ha="right", size=7)
    colours = _colours(run)
    for axes, rows in ((weight, run["weight"]), (gradient, run["gradient"])):
        for k in sorted(range(categories), key=lambda k: k == j):
            width = 1.8 if k == j else 0.6
            axes.plot(run["probed"], [row[k] for row in rows], color=colours[k], linewidth=width)
        axes.set_yscale("log")
    weight.set_title(f"({letters[1]}) $z_j$, bold: $j$ = {j}")
    gradient.set_title(rf"({letters[2]}) $|\partial L / \partial \theta_j|$, bold: $j$ = {j}")


def _colours(run: dict[str, Any]) -> list[str]:
    light, _, dark = shades(3)
    colours = [light if k in run["in_use"] else "0.7" for k in range(len(run["weight"][0]))]
    colours[run["category"]] = dark
    return colours
