"""Path queries by their length, in training and beyond, from records."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from ..engine.records import Record, RecordError
from ..engine.tables import Table, jobs
from ..tasks.paths.tables import EXTRAPOLATION, FB15K_237
from ..tasks.paths.tables import SMALL as SMALL_TABLE
from .runs import records_of
from .style import page, shades

_ON_UMLS = {  # by row and metric
    "ours, by a beam": ("Ours", "MRR, beam"),
    "ours": ("Ours", "MRR"),
    "without both methods": ("without both", "MRR"),
    "ComplEx-C, by a beam": ("ComplEx-C", "MRR, beam"),
    "ComplEx-C": ("ComplEx-C", "MRR"),
    "ComplEx, triples alone": ("ComplEx, triples alone", "MRR"),
}
_ON_FB15K_237 = {name: what for name, what in _ON_UMLS.items() if name != "without both methods"}
_ON_WN11 = {
    "5, beam looking back": ("Ours, paths up to 5", "H@10, looking back"),
    "5, by a beam": ("Ours, paths up to 5", "H@10, beam"),
    **{f"{length}": (f"Ours, paths up to {length}", "H@10") for length in (5, 3, 2, 1)},
}
_TABLES = {
    "UMLS": (SMALL_TABLE, _ON_UMLS),
    "FB15k-237": (FB15K_237, _ON_FB15K_237),
    "WN11": (EXTRAPOLATION, _ON_WN11),
}
_MARKERS = "os^PDv"


def compute(results: Path) -> dict[str, Any]:
    """Of every run a metric by the length of test paths, ready for JSON.

    Models are compared on UMLS and FB15k-237. On WN11 it is ours, by the longest paths it was
    trained on. Large graphs without any record are left out: not everybody has a GPU.
    """
    graphs = {}
    for graph, (table, groups) in _TABLES.items():
        wanted = jobs(table, results)
        rows = {row for row, _ in groups.values()}
        if graph == "UMLS" or any(job.record.exists() for row in rows for job in wanted[row]):
            graphs[graph] = [_group(table, name, *what, results) for name, what in groups.items()]
    ours = next(row for row in FB15K_237.rows if row.name == "Ours")
    paper = [mean / 100 for mean, _ in ours.paper.values()]
    return {"figure": "lengths", "graphs": graphs, "the paper on FB15k-237": paper}


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
    if not found:
        raise RecordError(f"a record of {record['settings']['graph']} has no {metric!r} by length.")
    return [found[length] for length in sorted(found)]


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Models on UMLS and FB15k-237, and ours on WN11 by what it was trained on."""
    graphs = numbers["graphs"]
    with page(path, width=7.2, height=3.9) as figure:
        places = dict(zip(graphs, figure.subplots(1, len(graphs), squeeze=False)[0], strict=True))
        for letter, (graph, axes) in zip("abc", places.items(), strict=False):
            _draw_groups(axes, graphs[graph], list(_ON_WN11 if graph == "WN11" else _ON_UMLS))
            axes.set_title(f"({letter}) {graph}")
            axes.set_ylim(0, 1)
            axes.set_xlabel("relations in a test path")
            axes.set_ylabel("H@10" if graph == "WN11" else "MRR")
            if graph == "WN11":
                axes.legend(
                    title="ours, trained on\npaths of up to", loc="lower right", fontsize="small"
                )
            else:
                _shade(axes, graphs[graph][0]["trained"])
        lines = places["UMLS"].get_legend_handles_labels()[0]
        if "FB15k-237" in places:
            paper = numbers["the paper on FB15k-237"]
            lengths = range(1, len(paper) + 1)
            lines += places["FB15k-237"].plot(
                lengths, paper, "--", color="dimgrey", label="ours, in the paper"
            )
        title = "(a), (b)" if "WN11" in places else None
        figure.legend(handles=lines, title=title, loc="outside lower center", ncols=4)


def _shade(axes: Axes, longest: int) -> None:
    """The lengths that were trained on."""
    axes.axvspan(0.5, longest + 0.5, color="grey", alpha=0.12, linewidth=0)
    axes.text(
        (longest + 1) / 2, 0.95, "in training", ha="center", color="dimgrey", fontsize="small",
        transform=axes.get_xaxis_transform(),
    )  # fmt: skip


def _draw_groups(axes: Axes, groups: Sequence[dict[str, Any]], names: list[str]) -> None:
    """A dot for each run, a line through their means; a name has one colour in all pictures."""
    looks = dict(zip(names, zip(reversed(shades(len(names))), _MARKERS, strict=False), strict=True))
    for group in groups:
        colour, marker = looks[group["name"]]
        means = [statistics.fmean(values) for values in zip(*group["runs"], strict=True)]
        lengths = range(1, len(means) + 1)
        for run in group["runs"]:
            axes.plot(lengths, run, marker, markersize=2.5, alpha=0.5, color=colour)
        axes.plot(lengths, means, color=colour, marker=marker, markersize=3.5, label=group["name"])
        axes.set_xlim(0.5, len(means) + 0.5)
        axes.set_xticks(lengths)
