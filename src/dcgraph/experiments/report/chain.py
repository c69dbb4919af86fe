"""The chain of nodes as the probe saw it in training: gradients, and the use of categories."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from markupsafe import Markup

from ..engine.records import Record
from ..engine.task import Task
from .charts import Line, Number, Point, heat_map, line_chart
from .curves import mean_over
from .groups import Group, best_of, epoch_of

_CATEGORIES = 64  # rows of a map of categories


def probes_of(record: Record) -> list[tuple[float, list[dict[str, Any]]]]:
    """Every look at the chain: the epoch, and the readings."""
    return [
        (epoch_of(record, look["step"]), look["probe"])
        for look in record["curve"]
        if "probe" in look
    ]


def chain_of(group: Group) -> dict[str, Any] | None:
    """The gradient that reaches each node over training, and the chain at the end."""
    curves: dict[str, list[list[Point]]] = {}
    last: dict[str, list[dict[str, Any]]] = {}
    for replica in group.replicas:
        probes = probes_of(replica.record)
        of_replica: dict[str, list[Point]] = {}
        for epoch, readings in probes:
            for reading in readings:
                of_replica.setdefault(_call(reading), []).append((epoch, reading["gradient"]))
        for call, points in of_replica.items():
            curves.setdefault(call, []).append(points)
        for reading in probes[-1][1] if probes else ():
            last.setdefault(_call(reading), []).append(reading)
    if not curves:
        return None
    lines = [
        Line(call, mean_over(some, _geometric_mean), number, bold=True)
        for number, (call, some) in enumerate(curves.items())
    ]
    chart = line_chart(
        lines,
        label=f"mean absolute gradient at every node, {group.name}",
        x_label="epoch",
        y_label="gradient",
        logarithmic=True,
    )
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


def _end_of_chain(last: dict[str, list[dict[str, Any]]]) -> list[dict[str, str]]:
    """The last look at every node: means over the replicas, of gradients as in the chart."""
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


def categories_of(group: Group, task: Task) -> list[dict[str, Any]]:
    """Which categories the nodes of the group's best replica used, over training."""
    best = best_of(group, task)
    probes = probes_of(best.record)
    if not probes:
        return []
    pictures = []
    for call in map(_call, probes[-1][1]):
        looks = [
            (epoch, reading["by_category"])
            for epoch, readings in probes
            for reading in readings
            if _call(reading) == call and reading["by_category"]
        ]
        if not looks:
            continue
        # What was not a number when it was read is nothing in the picture.
        weights = [[weight or 0.0 for weight in read["weight"]] for _, read in looks]
        order = sorted(range(len(weights[-1])), key=lambda j: -weights[-1][j])[:_CATEGORIES]
        chart = heat_map(
            [(str(j), [row[j] for row in weights]) for j in order],
            [epoch for epoch, _ in looks],
            label=f"weight of each category of {call} over training, {group.name}",
            x_label="epoch",
            y_label="category",
            colour=group.number,
        )
        used = sum(share > 0 for share in looks[-1][1]["use"])
        left_out = len(weights[-1]) - len(order)
        pictures.append(
            {
                "title": f"{group.name}: {call}",
                "note": f"seed {best.record['settings']['seed']}; at the end {used} of "
                f"{len(weights[-1])} are in use"
                + (f"; the {left_out} least used are not drawn" if left_out else ""),
                "svg": Markup(chart),
            }
        )
    return pictures
