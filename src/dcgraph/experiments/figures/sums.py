"""Sums of n digits and numbers of N digits: accuracy by length, beside what reading allows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from ..engine.errors import RecordError
from ..engine.metrics import Metric
from ..engine.records import Record
from ..engine.tables import Table, records_of
from ..tasks.addition.chain_tables import CARRIES, LONG_SUMS
from ..tasks.addition.settings import LENGTHS
from .style import page, shades

_READ = Metric("digit accuracy")
_SHOWN = LENGTHS[:-1]  # no number of 1,000 digits is read without an error


def compute(results: Path) -> dict[str, Any]:
    """Each seed at each length, ready for JSON; rows without records are left out."""
    sums = []
    for row in LONG_SUMS.rows:
        records = records_of(LONG_SUMS, row, results)
        if records:
            length = int(records[0].settings["summands"])
            sums.append(_point(records, Metric("accuracy"), length, length))
    carried = _of_numbers(CARRIES, results)
    if not sums and not carried:
        raise RecordError(
            f"{str(results)!r} has no records of long sums; choose --results, or run: dcgraph "
            "reproduce addition-sums addition-carry"
        )
    return {"figure": "sums", "sums": sums, "numbers": carried}


def _of_numbers(table: Table, results: Path) -> list[dict[str, Any]]:
    curves = []
    for row in table.rows:
        records = records_of(table, row, results)
        if records:
            points = [
                _point(records, Metric("accuracy", length=n), n, 2 * n) for n in LENGTHS if n < 1000
            ]
            curves.append({"trained": int(records[0].settings["digits"]), "points": points})
    return curves


def _point(records: Sequence[Record], metric: Metric, length: int, images: int) -> dict[str, Any]:
    """The accuracy of every seed, and that of the median seed if only reading made errors."""
    read = [record.value(_READ) or 0.0 for record in records]
    return {
        "length": length,
        "seeds": [record.value(metric) or 0.0 for record in records],
        "read": round(statistics.median(read) ** images, 4),
    }


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Sums of n digits on the left, numbers of N digits on the right."""
    with page(path, width=7.2, height=3.6) as figure:
        left, right = figure.subplots(1, 2)
        _draw_points(left, numbers["sums"], shades(2)[1], "each seed")
        left.set_title("(a) sums of n digits")
        left.set_xlabel("n, digits that are added")
        left.set_xticks([point["length"] for point in numbers["sums"]])
        for curve, colour in zip(numbers["numbers"], reversed(shades(2)), strict=False):
            _draw_points(right, curve["points"], colour, f"trained on N = {curve['trained']}")
        right.set_xscale("log")
        right.set_xticks(_SHOWN, [str(n) for n in _SHOWN])
        right.minorticks_off()
        right.set_title("(b) numbers of N digits, with a learned carry")
        right.set_xlabel("N, digits of each number")
        left.set_ylabel("sums that are right, per cent")
        least = min((100 * s for point in numbers["sums"] for s in point["seeds"]), default=100)
        left.set_ylim(min(70, least - 1), 101)
        right.set_ylim(-2, 101)
        for axes in (left, right):
            axes.legend(loc="lower left")


def _draw_points(axes: Axes, points: Sequence[dict[str, Any]], colour: str, label: str) -> None:
    lengths = [point["length"] for point in points]
    allowed = [100 * point["read"] for point in points]
    axes.plot(lengths, allowed, color=colour, linestyle="--", label="if adding made no error")
    for index, point in enumerate(points):
        values = [100 * value for value in point["seeds"]]
        axes.plot(
            [point["length"]] * len(values), values, color=colour, marker="o", markersize=3,
            linestyle="", alpha=0.6, label=label if index == 0 else None,
        )  # fmt: skip
