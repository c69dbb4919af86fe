"""Numbers of a run on a screen: what was measured, and of which length, by the way to answer."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...training.readouts import Grid

WAYS = {
    "argmax": "argmax",
    "ties as the paper": "ties as the paper",
    "beam": "beam",
    "argmax looking back": "argmax looking back",
    "looking back": "beam looking back",
}
"""How queries are answered, as records call it, and as tables do."""

_NAME = re.compile(
    r"(?P<metric>MQ|MRR|H@\d+)(?:/argmax|, (?P<way>(?!length)[^,]+))?(?P<length>, length \d+)?"
)


def by_way(names: Iterable[str]) -> tuple[list[str], Grid]:
    """What stands for itself, and a grid: a row for each metric and length, a column for each way.

    Averages by argmax are in both.

    >>> by_way(["MQ/argmax", "MQ, length 1", "MQ, looking back", "sharpness"])[0]
    ['MQ/argmax', 'sharpness']
    """
    alone: list[str] = []
    found: dict[str, dict[str, str]] = {}
    for name in names:
        match = _NAME.fullmatch(name)
        if match:
            of_row = found.setdefault(match["metric"] + (match["length"] or ""), {})
            of_row[match["way"] or "argmax"] = name
        if not match or name.endswith("/argmax"):
            alone.append(name)
    ways = [way for way in WAYS if any(way in of_row for of_row in found.values())]
    metrics = list(found)
    rows = sorted(found, key=lambda row: "," in row and 1 + metrics.index(row.partition(",")[0]))
    return alone, {row: {WAYS[way]: found[row].get(way, "") for way in ways} for row in rows}
