"""From the records of a run, and its models where they were kept, to one page."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ..files import write_atomically
from ..training.exhibits import Examples
from ..training.models import load_model
from ..training.readouts import by_set
from ..training.records import Record
from ..training.settings import Settings, from_dict, steps_per_move
from ..training.task import Task
from .charts import COLOURS, Line, Number, Point, heat_map, line_chart
from .png import data_uri

_SHOWN = 6  # groups with pictures of their own; all are in the table and in the curves
_PER_CHART = 4  # groups in one chart, where there are too many for one
_EXHIBITED = 2  # groups whose best model is shown at work
_CATEGORIES = 64  # rows of a map of categories
_DIAL_POINTS = 200


@dataclass(frozen=True)
class Replica:
    """One replica: the settings it stands for in words, its record, its model if it was kept."""

    group: str
    record: Record
    model: Path | None = None


@dataclass(frozen=True)
class _Group:
    """Replicas that differ in the seed alone."""

    name: str
    number: int
    replicas: list[Replica]
    settings: Settings


def write_report(
    path: Path,
    task: Task,
    replicas: Sequence[Replica],
    *,
    title: str,
    command: str,
    data_dir: Path | None = None,
) -> None:
    """Write the page of a run.

    Args:
        path: the file.
        task: what was trained; it shows a model at work, if the replicas have one.
        replicas: all of the run, in the order in which their groups are to be named.
        title: the heading.
        command: how to repeat the run.
        data_dir: where the data are, as for training.
    """
    groups = _groups(task, replicas)
    with_nodes = [g for g in groups if any(_probes(r.record) for r in g.replicas)]
    shown = _leading(with_nodes, _SHOWN, task)
    content = {
        "title": title,
        "command": command,
        "made": f"{datetime.now():%Y-%m-%d %H:%M}",
        "groups": _keys(groups),
        "hidden": len(with_nodes) - len(shown),
        "facts": _facts(groups),
        "summary": _summary(groups, task),
        "stopped": _stopped(replicas),
        "curves": [_curves(some, task) for some in _readable(groups)],
        "dials": [_dials(some) for some in _readable(with_nodes)],
        "chains": [chain for group in shown if (chain := _chain(group))],
        "categories": [picture for group in shown for picture in _categories(group, task)],
        "exhibits": [
            exhibit
            for group in _leading(groups, _EXHIBITED, task)
            for exhibit in _exhibits(group, task, data_dir)
        ],
        "settings": _settings(groups),
    }
    # Whatever comes from a record or a task is escaped; only our own SVG is not.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["data_uri"] = data_uri
    template = environment.from_string((files(__package__) / "page.html").read_text())
    text = template.render(content)
    write_atomically(path, lambda draft: draft.write_text(text, encoding="utf-8"))


def _groups(task: Task, replicas: Sequence[Replica]) -> list[_Group]:
    by_name: dict[str, list[Replica]] = {}
    for replica in replicas:
        by_name.setdefault(replica.group, []).append(replica)
    return [
        _Group(name, number, some, from_dict(task.settings, some[0].record["settings"]))
        for number, (name, some) in enumerate(by_name.items())
    ]


def _monitor(groups: Sequence[_Group], task: Task) -> str:
    """The metric to look at: by which the weights were chosen, in the first group."""
    return task.monitored(groups[0].settings)


def _score(replica: Replica, task: Task) -> float:
    """What the weights of a replica were chosen by."""
    name = replica.record.get("chosen_by", f"{task.monitor}/argmax")  # older records lack it
    looks = (look[name] for look in replica.record["curve"])
    return max((value for value in looks if value is not None), default=-math.inf)


def _best(group: _Group, task: Task) -> Replica:
    return max(group.replicas, key=lambda replica: _score(replica, task))


def _leading(groups: Sequence[_Group], count: int, task: Task) -> list[_Group]:
    """The groups with the best replicas, in their old order."""
    ranked = sorted(groups, key=lambda group: -_score(_best(group, task), task))
    return sorted(ranked[:count], key=lambda group: group.number)


def _facts(groups: Sequence[_Group]) -> list[str]:
    """A line of numbers under the title."""
    records = [replica.record for group in groups for replica in group.replicas]
    populations = {record["population"]["name"]: record for record in records}.values()
    seconds = sum(record["seconds"] for record in populations)
    steps = sorted({record["steps"] for record in records})
    return [
        _count(len(records), "replica") + (f" of {len(groups)} kinds" if len(groups) > 1 else ""),
        (f"{steps[0]:,} to " if len(steps) > 1 else "") + f"{steps[-1]:,} steps",
        _count(len(populations), "population"),
        f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min",
        ", ".join(sorted({record["hardware"] for record in records})),
        ", ".join(f"{count:,} parameters" for count in sorted({r["parameters"] for r in records})),
    ]


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def _summary(groups: Sequence[_Group], task: Task) -> dict[str, Any]:
    """Test metrics of every group: mean, spread; and the best and worst of the monitored one."""
    monitored = f"{_monitor(groups, task)}/argmax"
    measured = [
        [{**replica.record["test"], **replica.record["readout"]} for replica in group.replicas]
        for group in groups
    ]
    records = [replica.record for group in groups for replica in group.replicas]
    parts = ("test", "readout")
    names = list(dict.fromkeys(name for part in parts for r in records for name in r[part]))
    alone, grid = by_set(names)
    rows, of_sets = [], []
    for group, tests in zip(groups, measured, strict=True):
        cells = [_spread([test.get(name) for test in tests]) for name in alone]
        every = sorted((t[monitored] for t in tests if t.get(monitored) is not None), reverse=True)
        rows.append(
            {
                "name": group.name,
                "number": group.number,
                "replicas": len(tests),
                "cells": cells,
                "every": [_digits(value) for value in every],
            }
        )
        filled = [
            (_words(row), [_spread([test.get(name) for test in tests]) for name in of.values()])
            for row, of in grid.items()
        ]
        of_sets.append({"name": group.name, "number": group.number, "rows": filled})
    chosen_on = {r["chosen_on"] for r in records} - {None}
    return {
        "names": [_words(name) for name in alone],
        "rows": rows,
        "columns": [_words(name) for name in next(iter(grid.values()), ())],
        "of_sets": of_sets if grid else [],
        "monitored": _words(monitored),
        "chosen_on": " or ".join(sorted(chosen_on)) or "validation",
    }


def _words(name: str) -> str:
    return name.replace("/", ", ")


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    mean = _digits(statistics.fmean(known))
    return mean if len(known) == 1 else f"{mean} ± {_digits(statistics.stdev(known))}"


def _digits(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.4g}"


def _stopped(replicas: Sequence[Replica]) -> list[str]:
    return [
        f"{replica.group}, seed {replica.record['settings']['seed']}: its loss or gradient was not "
        f"finite at step {replica.record['stopped_at']:,}; it stopped there."
        for replica in replicas
        if replica.record["stopped_at"] is not None
    ]


def _epoch(record: Record, step: int) -> float:
    return float(step * record["settings"]["epochs"] / record["steps"])


def _readable(groups: Sequence[_Group]) -> list[Sequence[_Group]]:
    """Groups that share a chart: all, unless there are more than colours to tell them apart."""
    at_once = COLOURS if len(groups) <= COLOURS else _PER_CHART
    return [groups[k : k + at_once] for k in range(0, len(groups), at_once)]


def _curves(groups: Sequence[_Group], task: Task) -> dict[str, Any]:
    """Learning curves of all replicas, with the mean of each group."""
    monitor = _monitor(groups, task)
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
        chart = line_chart(
            lines,
            label=f"{title} over training, one line per replica",
            x_label="epoch",
            y_label=short,
            y_range=(0.0, 1.0) if shares else None,
        )
        if chart:
            charts.append({"title": title, "svg": Markup(chart)})
    return {"groups": _keys(groups), "charts": charts}


def _keys(groups: Sequence[_Group]) -> list[dict[str, Any]]:
    return [{"name": group.name, "number": group.number} for group in groups]


def _lines(group: _Group, name: str) -> list[Line]:
    lines = []
    for replica in group.replicas:
        record = replica.record
        points = [(_epoch(record, look["step"]), look[name]) for look in record["curve"]]
        lines.append(Line(f"{group.name}, seed {record['settings']['seed']}", points, group.number))
    if len(lines) == 1:
        return [Line(lines[0].name, lines[0].points, group.number, bold=True)]
    means = _mean_over([line.points for line in lines], statistics.fmean)
    return [*lines, Line(f"{group.name}, mean", means, group.number, bold=True)]


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


def _dials(groups: Sequence[_Group]) -> dict[str, Any]:
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
    return {"groups": _keys(groups), "charts": charts}


def _values_of(dial: str, group: _Group) -> list[Point]:
    record = group.replicas[0].record
    every = steps_per_move(record["steps"] // group.settings.epochs, group.settings.moves)
    dials = group.settings.dials(every)
    points: list[Point] = []
    for step in sorted(
        {round(record["steps"] * k / _DIAL_POINTS) for k in range(_DIAL_POINTS + 1)}
    ):
        dials.load_state_dict({"calls": step, "every": every})
        points.append((_epoch(record, step), dials.values()[dial]))
    return points


def _probes(record: Record) -> list[tuple[float, list[dict[str, Any]]]]:
    """Every look at the chain: the epoch, and the readings."""
    return [
        (_epoch(record, look["step"]), look["probe"]) for look in record["curve"] if "probe" in look
    ]


def _chain(group: _Group) -> dict[str, Any] | None:
    """The gradient that reaches each node over training, and the chain at the end."""
    curves: dict[str, list[list[Point]]] = {}
    last: dict[str, list[dict[str, Any]]] = {}
    for replica in group.replicas:
        probes = _probes(replica.record)
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
        Line(call, _mean_over(some, _geometric_mean), number, bold=True)
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


def _categories(group: _Group, task: Task) -> list[dict[str, Any]]:
    """Which categories the nodes of the group's best replica used, over training."""
    best = _best(group, task)
    probes = _probes(best.record)
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


def _exhibits(group: _Group, task: Task, data_dir: Path | None) -> list[dict[str, Any]]:
    """What the task shows of the group's best model."""
    best = _best(group, task)
    if best.model is None:
        return []
    model, settings = load_model(best.model, task)
    data = task.data(settings, data_dir)
    return [
        {
            "group": group.name,
            "seed": best.record["settings"]["seed"],
            "kind": "examples" if isinstance(exhibit, Examples) else "grid",
            "shown": exhibit,
        }
        for exhibit in task.exhibits(model, settings, data)
    ]


def _settings(groups: Sequence[_Group]) -> dict[str, Any]:
    """What all groups share, what they differ in, and where the numbers come from."""
    values = [group.replicas[0].record["settings"] for group in groups]
    differing = [n for n in values[0] if n != "seed" and len({str(v[n]) for v in values}) > 1]
    records = [replica.record for group in groups for replica in group.replicas]

    def all_of(name: str) -> str:
        return ", ".join(sorted({str(record[name]) for record in records}))

    return {
        "shared": [(n, v) for n, v in values[0].items() if n not in (*differing, "seed")],
        "differing": differing,
        "by_group": [
            (group.name, [value[name] for name in differing])
            for group, value in zip(groups, values, strict=True)
        ],
        "seeds": _ranges(sorted({record["settings"]["seed"] for record in records})),
        "origin": [
            ("dcgraph", all_of("code")),
            ("torch", all_of("torch")),
            ("hardware", all_of("hardware")),
            ("data, fingerprint", all_of("data")),
            ("populations", ", ".join(sorted({r["population"]["name"] for r in records}))),
        ],
    }


def _ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers, runs of them as ranges.

    >>> _ranges([0, 1, 2, 5, 7, 8])
    '0 to 2, 5, 7 to 8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]} to {r[-1]}" for r in runs)
