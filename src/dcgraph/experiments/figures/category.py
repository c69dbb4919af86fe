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

from ..engine.records import Probes, Record
from ..tasks.addition.tables import ANNEALING, epoch_of
from .annealing import HELD_OUT, LEVELS, run_with
from .runs import with_probes
from .style import page, shades

_IN_USE = 0.02  # share of the images that get the category in the end, at least


def compute(results: Path) -> dict[str, Any]:
    """Accuracy, z_j and |dL/dtheta_j| over training, ready for JSON."""
    matched = _runs("TempMatch", results)
    base = _runs("base", results)
    last = max(matched, key=lambda run: epoch_of(run[0], LEVELS[0]) or 0.0)
    lowest = min(base, key=lambda run: run[0].curve.metrics[HELD_OUT][-1] or 0.0)
    return {
        "figure": "category",
        "runs": [_story("TempMatch", *last, found_last), _story("base", *lowest, least_used)],
    }


def _runs(scheme: str, results: Path) -> list[tuple[Record, Probes]]:
    return with_probes(ANNEALING, run_with(2, dropres=False, scheme=scheme), results)


def _story(
    scheme: str,
    record: Record,
    probes: Probes,
    choose: Callable[[list[list[float]], list[float]], int],
) -> dict[str, Any]:
    readings = [nodes[0]["by_category"] for nodes in probes.values()]  # the one that reads images
    weights = [reading["weight"] for reading in readings]
    return {
        "scheme": scheme,
        "seed": record.seed,
        "category": choose(weights, readings[-1]["use"]),
        "in_use": [j for j, share in enumerate(readings[-1]["use"]) if share >= _IN_USE],
        "epochs": [round(step / record.steps_per_epoch, 3) for step in record.curve.step],
        "accuracy": record.curve.metrics[HELD_OUT],
        "probed": [round(step / record.steps_per_epoch, 3) for step in probes],
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
