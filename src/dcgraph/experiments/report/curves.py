"""Charts over training: metrics, loss and dials; gradients and categories as the probe saw them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from ...dials import Dials
from .charts import Line, Number, Point, heat_map, line_chart, span
from .groups import Group, Replica, keys, monitored, selected_on

_DIAL_POINTS = 200
_EXPLODED = 1000  # times its first value: such a loss would press all others to the ground
_CATEGORIES = 64  # rows of a map of categories
_NAMED = 12  # of one with a name beside each row


def curves_of(groups: Sequence[Group]) -> dict[str, Any]:
    """Learning curves of all replicas, with the mean of each group."""
    name = monitored(groups).name
    charts = [
        _chart(groups, name, f"{name} on the {selected_on(groups)} set, hard", _monitored_curve),
        _chart(groups, "loss", "training loss", lambda replica: replica.record.curve.loss),
    ]
    return {"groups": keys(groups), "charts": [chart for chart in charts if chart]}


def _monitored_curve(replica: Replica) -> Sequence[float | None]:
    """The metric by which the weights were selected; by argmax, as all replicas are measured."""
    record = replica.record
    return record.curve.metrics.get(replace(record.selection.metric, decoder="argmax"), [])


def _chart(
    groups: Sequence[Group],
    name: str,
    title: str,
    values_of: Callable[[Replica], Sequence[float | None]],
) -> dict[str, Any] | None:
    lines = [line for group in groups for line in _lines(group, values_of)]
    values = [y for line in lines for _, y in line.points if y is not None]
    shares = name != "loss" and all(0 <= value <= 1 for value in values)
    exploded = name == "loss" and any(map(_explodes, lines))
    chart = line_chart(
        lines,
        label=f"{title} over training, one line per replica" + ", in powers of ten" * exploded,
        x_label="epoch",
        y_label=name,
        y_range=(0.0, 1.0) if shares else None,
        logarithmic=exploded,
    )
    return {"title": title, "svg": Markup(chart)} if chart else None


def _explodes(line: Line) -> bool:
    values = [y for _, y in line.points if y is not None]
    return bool(values) and max(values) > _EXPLODED * values[0] > 0


def _lines(group: Group, values_of: Callable[[Replica], Sequence[float | None]]) -> list[Line]:
    lines = []
    for replica in group.replicas:
        epochs = [_epoch(replica, step) for step in replica.record.curve.step]
        points = list(zip(epochs, values_of(replica), strict=False))
        lines.append(Line(f"{group.name}, seed {replica.record.seed}", points, group.number))
    if len(lines) == 1:
        return [replace(lines[0], bold=True)]
    means = _mean_over([line.points for line in lines], statistics.fmean)
    return [*lines, Line(f"{group.name}, mean", means, group.number, bold=True)]


def _epoch(replica: Replica, step: int) -> float:
    record = replica.record
    return float(step / record.steps_per_epoch) if record.steps else 0.0


def _mean_over(
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
    first, settings = group.replicas[0], group.settings
    steps = first.record.steps
    every = max(1, steps // max(1, settings.epochs) // settings.schedule_steps)
    dials = Dials(**settings.schedules(), every=every)
    shown = sorted({round(steps * k / _DIAL_POINTS) for k in range(_DIAL_POINTS + 1)})
    return [(_epoch(first, step), dials.at(step)[dial]) for step in shown]


def chains_of(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """The gradient that reaches each node over training, and the chain at the end.

    The charts of all groups have one axis: what is larger in one is drawn higher.
    """
    lines = {group.name: _gradients(group) for group in groups}
    known = [y for some in lines.values() for line in some for _, y in line.points if y is not None]
    return [_chain(group, lines[group.name], known) for group in groups if lines[group.name]]


def _gradients(group: Group) -> list[Line]:
    """A line for each call of a node, over the replicas of a group."""
    curves: dict[str, list[list[Point]]] = {}
    for replica in group.replicas:
        of_replica: dict[str, list[Point]] = {}
        for step, readings in replica.probes.items():
            for reading in readings:
                point = _epoch(replica, step), reading["gradient"]
                of_replica.setdefault(_call(reading), []).append(point)
        for call, points in of_replica.items():
            curves.setdefault(call, []).append(points)
    return [
        Line(call, _mean_over(some, _geometric_mean), number, bold=True)
        for number, (call, some) in enumerate(curves.items())
    ]


def _chain(group: Group, lines: Sequence[Line], known: Sequence[Number]) -> dict[str, Any]:
    """The chart of a group on the axis of all, and the chain at the end."""
    chart = line_chart(
        lines,
        label=f"mean absolute gradient at every node, {group.name}",
        x_label="epoch",
        y_label="gradient",
        y_range=span(known, logarithmic=True),
        logarithmic=True,
    )
    last: dict[str, list[dict[str, Any]]] = {}
    for replica in group.replicas:
        probes = list(replica.probes.values())
        for reading in probes[-1] if probes else []:
            last.setdefault(_call(reading), []).append(reading)
    return {
        "name": group.name,
        "svg": Markup(chart),
        "nodes": [{"name": line.name, "number": line.colour} for line in lines],
        "rows": _end_of_chain(last),
    }


def _call(reading: dict[str, Any]) -> str:
    return f"{reading['name']}[{reading['call']}]"


def _geometric_mean(values: Iterable[Number]) -> float:
    """Gradients differ by powers of ten; one that is 0 says that nothing arrives at all."""
    known = list(values)
    return statistics.geometric_mean(known) if all(value > 0 for value in known) else 0.0


def _end_of_chain(last: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, str]]:
    """What the probe read last at every node: means over replicas, of gradients as in the chart."""
    gradients = {
        call: _geometric_mean(known) if (known := _known(readings, "gradient")) else None
        for call, readings in last.items()
    }
    nodes = [call for call, readings in last.items() if readings[0]["categories"]]
    of_last = gradients[nodes[-1]] if nodes else None
    rows = []
    for call, readings in last.items():
        gradient, used = gradients[call], _mean(readings, "used")
        ratio = gradient / of_last if gradient is not None and of_last else None
        rows.append(
            {
                "node": call,
                "gradient": _optional(gradient, ".1e"),
                "ratio": _optional(ratio, ".2g"),
                "entropy": _optional(_mean(readings, "entropy"), ".2f"),
                "used": "-" if used is None else f"{used:.1f} of {readings[0]['categories']}",
                "saturated": _optional(_mean(readings, "saturated"), ".0%"),
                "gap": _optional(_mean(readings, "gap"), ".2f"),
            }
        )
    return rows


def _known(readings: list[dict[str, Any]], name: str) -> list[Number]:
    return [reading[name] for reading in readings if reading[name] is not None]


def _mean(readings: list[dict[str, Any]], name: str) -> float | None:
    known = _known(readings, name)
    return statistics.fmean(known) if known else None


def _optional(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def categories_of(group: Group, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Which categories the nodes of the group's best replica used, over training.

    Where they have names, only as many are drawn as there is room for names.
    """
    best = group.best()
    if not best.probes:
        return []
    pictures = []
    for call in map(_call, list(best.probes.values())[-1]):
        read = [
            (_epoch(best, step), reading["by_category"])
            for step, readings in best.probes.items()
            for reading in readings
            if _call(reading) == call and reading["by_category"]
        ]
        if not read:
            continue
        # What was not a number when it was read is nothing in the picture.
        weights = [[weight or 0.0 for weight in one["weight"]] for _, one in read]
        drawn = _NAMED if names else _CATEGORIES
        order = sorted(range(len(weights[-1])), key=lambda j: -weights[-1][j])[:drawn]
        chart = heat_map(
            [(names[j] if names else str(j), [row[j] for row in weights]) for j in order],
            [epoch for epoch, _ in read],
            label=f"weight of each category of {call} over training, {group.name}",
            x_label="epoch",
            y_label="category",
            colour=group.number,
        )
        used = sum(share > 0 for share in read[-1][1]["use"])
        left_out = len(weights[-1]) - len(order)
        pictures.append(
            {
                "title": f"{group.name}: {call}",
                "note": f"seed {best.record.seed}; at the end {used} of "
                f"{len(weights[-1])} are in use"
                + (f"; the {left_out} least used are not drawn" if left_out else ""),
                "svg": Markup(chart),
            }
        )
    return pictures
