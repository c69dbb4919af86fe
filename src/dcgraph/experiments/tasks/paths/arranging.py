"""Numbers of a run on a screen: what was measured, and of which length, by the way to answer."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...engine.readouts import Layout

BEAM, BACK, ARGMAX_BACK = "beam", "looking back", "argmax looking back"
WAYS = {
    "argmax": "argmax",
    "ties as the paper": "ties as the paper",
    BEAM: "beam",
    ARGMAX_BACK: "argmax looking back",
    BACK: "beam looking back",
}
"""How answers are found and ranked, as records call it, and as tables do."""

_NAME = re.compile(
    r"(?P<metric>MQ|MRR|H@\d+)"
    rf"(?:/argmax|, (?P<way>{'|'.join(WAYS)}))?"
    r"(?P<length>, length \d+)?"
)


def by_way(names: Iterable[str]) -> tuple[list[str], Layout]:
    """What stands for itself, and a row for each metric and length, a column for each way.

    Averages by argmax are in both.

    >>> alone, grid = by_way(["MQ/argmax", "MQ, length 1", "MQ, looking back", "sharpness"])
    >>> alone
    ['MQ/argmax', 'sharpness']
    >>> grid["MQ"]
    {'argmax': 'MQ/argmax', 'beam looking back': 'MQ, looking back'}
    """
    alone: list[str] = []
    averages: dict[str, dict[str, str]] = {}
    by_length: dict[str, dict[str, dict[str, str]]] = {}  # of each metric
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None or name.endswith("/argmax"):
            alone.append(name)
        if match is not None:
            metric, length = match["metric"], match["length"]
            of_metric = by_length.setdefault(metric, {}) if length else averages
            row = of_metric.setdefault(metric + (length or ""), {})
            row[match["way"] or "argmax"] = name
    rows = averages | {row: of for lengths in by_length.values() for row, of in lengths.items()}
    ways = [way for way in WAYS if any(way in of for of in rows.values())]
    return alone, {row: {WAYS[way]: of.get(way, "") for way in ways} for row, of in rows.items()}
