"""Path queries by their length, in training and beyond, from records."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from ..tasks.paths.tables import EXTRAPOLATION
from ..tasks.paths.tables import SMALL as SMALL_TABLE
from ..training.records import Record, RecordError
from ..training.tables import Table
from .runs import records_of
from .style import page, shades

_MODELS = {  # by row and metric
    "ours, by a beam": ("Ours", "MRR, beam"),
    "ours": ("Ours", "MRR"),
    "without both methods": ("without both", "MRR"),
    "ComplEx-C, by a beam": ("ComplEx-C", "MRR, beam"),
    "ComplEx-C": ("ComplEx-C", "MRR"),
    "ComplEx, triples alone": ("ComplEx, triples alone", "MRR"),
}
_TRAINED = {f"up to {length}": f"Ours, paths up to {length}" for length in range(1, 6)}
_MARKERS = "os^PDv"


def compute(results: Path) -> dict[str, Any]:
    """Of every run a metric by the length of test paths, ready for JSON.

    Models are compared on UMLS. On WN11 it is ours, by the longest paths it was trained on; rows of
    that table which have not been run are left out.
    """
    models = [_group(SMALL_TABLE, name, *what, results) for name, what in _MODELS.items()]
    trained = []
    for name, row in _TRAINED.items():
        with suppress(RecordError):
            trained.append(_group(EXTRAPOLATION, name, row, "H@10", results))
    return {"figure": "lengths", "UMLS": models, "WN11": trained}


def _group(table: Table, name: str, row: str, metric: str, results: Path) -> dict[str, Any]:
    records = records_of(table, row, results)
    return {
        "name": name,
        "trained": records[0]["settings"]["length"],
        "runs": [_by_length(record, metric) for record in records],
    }


def _by_length(record: Record, metric: str) -> list[float]:
    beginning = f"{metric}, length "
    found = {
        int(name.removeprefix(beginning)): value
        for name, value in record["readout"].items()
        if name.startswith(beginning)
    }
    return [found[length] for length in sorted(found)]


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Models on UMLS, and ours on WN11 by what it was trained on."""
    with page(path, width=7.2, height=3.6) as figure:
        models, trained = figure.subplots(1, 2)
        _draw_groups(models, numbers["UMLS"])
        longest = numbers["UMLS"][0]["trained"]
        models.axvspan(0.5, longest + 0.5, color="grey", alpha=0.12, linewidth=0)
        models.text(
            (longest + 1) / 2, 0.02, "in training", ha="center", color="dimgrey",
            transform=models.get_xaxis_transform(),
        )  # fmt: skip
        models.set_title(f"(a) UMLS, trained on paths of up to {longest} relations")
        models.set_ylabel("MRR")
        models.legend(loc="upper right", bbox_to_anchor=(1.0, 0.58), fontsize="x-small")
        _draw_groups(trained, numbers["WN11"])
        trained.set_title("(b) ours on WN11")
        trained.set_ylabel("H@10")
        if numbers["WN11"]:
            trained.legend(title="trained on paths of", loc="lower right")
        for axes in (models, trained):
            axes.set_ylim(0, 1)
            axes.set_xlabel("relations in a test path")


def _draw_groups(axes: Axes, groups: Sequence[dict[str, Any]]) -> None:
    """A dot for each run, a line through their means."""
    for group, colour, marker in zip(
        groups, reversed(shades(len(groups))), cycle(_MARKERS), strict=False
    ):
        means = [statistics.fmean(values) for values in zip(*group["runs"], strict=True)]
        lengths = range(1, len(means) + 1)
        for run in group["runs"]:
            axes.plot(lengths, run, marker, markersize=2.5, alpha=0.5, color=colour)
        axes.plot(lengths, means, color=colour, marker=marker, markersize=3.5, label=group["name"])
        axes.set_xlim(0.5, len(means) + 0.5)
        axes.set_xticks(lengths)
