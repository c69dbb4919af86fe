"""Charts over training: metrics, loss and dials."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from markupsafe import Markup

from ..engine.settings import steps_per_move
from ..engine.task import Task
from .charts import Line, Number, Point, line_chart
from .groups import Group, epoch_of, keys, metric_of

_DIAL_POINTS = 200
_EXPLODED = 1000  # times its first look: such a loss would press all others to the ground


def curves_of(groups: Sequence[Group], task: Task) -> dict[str, Any]:
    """Learning curves of all replicas, with the mean of each group."""
    monitor = metric_of(groups, task)
    splits = {r.record["chosen_on"] for group in groups for r in group.replicas} - {None}
    split = " or ".join(sorted(splits)) or "validation"
    wanted = (
        (f"{monitor}/argmax", monitor, f"{monitor} on the {split} set, hard"),
        ("loss", "loss", "training loss"),
    )
    charts = []
    for name, short, title in wanted:
        lines = [line for group in groups for line in _lines(group, name)]
        values = [y for line in lines for _, y in line.points if y is not None]
        shares = name != "loss" and all(0 <= value <= 1 for value in values)
        exploded = name == "loss" and any(map(_explodes, lines))
        chart = line_chart(
            lines,
            label=f"{title} over training, one line per replica" + ", in powers of ten" * exploded,
            x_label="epoch",
            y_label=short,
            y_range=(0.0, 1.0) if shares else None,
            logarithmic=exploded,
        )
        if chart:
            charts.append({"title": title, "svg": Markup(chart)})
    return {"groups": keys(groups), "charts": charts}


def _explodes(line: Line) -> bool:
    values = [y for _, y in line.points if y is not None]
    return bool(values) and max(values) > _EXPLODED * values[0] > 0


def _lines(group: Group, name: str) -> list[Line]:
    lines = []
    for replica in group.replicas:
        record = replica.record
        points = [(epoch_of(record, look["step"]), look[name]) for look in record["curve"]]
        lines.append(Line(f"{group.name}, seed {record['settings']['seed']}", points, group.number))
    if len(lines) == 1:
        return [Line(lines[0].name, lines[0].points, group.number, bold=True)]
    means = mean_over([line.points for line in lines], statistics.fmean)
    return [*lines, Line(f"{group.name}, mean", means, group.number, bold=True)]


def mean_over(
    curves: Sequence[Sequence[Point]],
    mean: Callable[[Iterable[Number]], float],
) -> list[Point]:
    """The mean of curves at every place; replicas that have stopped no longer count."""
    at: dict[Number, list[Number]] = {}
    for curve in curves:
        for x, y in curve:
            values = at.setdefault(x, [])
            if y is not None:
                values.append(y)
    return [(x, mean(values) if values else None) for x, values in sorted(at.items())]


def dials_of(groups: Sequence[Group]) -> dict[str, Any]:
    """tau, beta and alpha over training, as the settings ask for them."""
    meanings = {
        "tau": "tau, the temperature",
        "beta": "beta, the scale of the noise",
        "alpha": "alpha, the share of dropped residuals",
    }
    charts = []
    for dial, title in meanings.items():
        lines = [
            Line(group.name, _values_of(dial, group), group.number, bold=True) for group in groups
        ]
        high = max(y for line in lines for _, y in line.points if y is not None)
        chart = line_chart(
            lines,
            label=f"{title} over training",
            x_label="epoch",
            y_label=dial,
            y_range=(0.0, high * 1.05 or 1.0),
        )
        charts.append({"title": title, "svg": Markup(chart)})
    return {"groups": keys(groups), "charts": charts}


def _values_of(dial: str, group: Group) -> list[Point]:
    record = group.replicas[0].record
    every = steps_per_move(record["steps"] // group.settings.epochs, group.settings.moves)
    dials = group.settings.dials(every)
    points: list[Point] = []
    for step in sorted(
        {round(record["steps"] * k / _DIAL_POINTS) for k in range(_DIAL_POINTS + 1)}
    ):
        dials.load_state_dict({"calls": step, "every": every})
        points.append((epoch_of(record, step), dials.values()[dial]))
    return points
