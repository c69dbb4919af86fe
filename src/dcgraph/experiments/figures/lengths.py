"""Path queries by their length, in training and beyond, from records."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from ..engine.errors import RecordError
from ..engine.metrics import Metric, in_words
from ..engine.records import Record
from ..engine.tables import Table, record_of
from ..tasks.paths.tables import EXTRAPOLATION, FB15K_237
from ..tasks.paths.tables import SMALL as SMALL_TABLE
from .runs import complete_records, run_of
from .style import page, shades

_MRR, _MRR_BEAM = Metric("MRR"), Metric("MRR", decoder="beam")
_HITS, _HITS_BEAM = Metric("H@10"), Metric("H@10", decoder="beam")
_HITS_BOTH_WAYS = Metric("H@10", decoder="beam", bidirectional=True)

_HOPS, _HOPS_BEAM = "discrete hops", "discrete hops, beam search"  # an entity at each
_WITHOUT = "without both methods"
_PATHS, _PATHS_BEAM, _TRIPLES = "ComplEx-C", "ComplEx-C, beam search", "ComplEx, only triples"
_Lines = dict[str, tuple[str, Metric]]  # run and metric, by the name in the picture
ON_UMLS: _Lines = {
    _HOPS_BEAM: ("umls-paper", _MRR_BEAM),
    _HOPS: ("umls-paper", _MRR),
    _WITHOUT: ("umls-paper-plain", _MRR),
    _PATHS_BEAM: ("umls-complex", _MRR_BEAM),
    _PATHS: ("umls-complex", _MRR),
    _TRIPLES: ("umls-complex-triples", _MRR),
}
ON_FB15K_237: _Lines = {
    _HOPS_BEAM: ("fb15k-237-variant", _MRR_BEAM),
    _HOPS: ("fb15k-237-variant", _MRR),
    _PATHS_BEAM: ("fb15k-237-complex", _MRR_BEAM),
    _PATHS: ("fb15k-237-complex", _MRR),
    _TRIPLES: ("fb15k-237-complex-triples", _MRR),
}
ON_WN11: _Lines = {
    "5, beam, bidirectional": ("wn11-variant", _HITS_BOTH_WAYS),
    "5, beam search": ("wn11-variant", _HITS_BEAM),
    "5": ("wn11-variant", _HITS),
    **{f"{length}": (f"wn11-variant-length-{length}", _HITS) for length in (3, 2, 1)},
}
GRAPHS: dict[str, tuple[Table, _Lines]] = {
    "UMLS": (SMALL_TABLE, ON_UMLS),
    "FB15k-237": (FB15K_237, ON_FB15K_237),
    "WN11": (EXTRAPOLATION, ON_WN11),
}
_MARKERS = "os^PDv"


def compute(results: Path) -> dict[str, Any]:
    """Of every run a metric by the length of test paths, ready for JSON.

    Models are compared on UMLS (with the paper's method, settings for a small graph) and FB15k-237
    (with our variant of it). On WN11 it is our variant, by the longest paths it was trained on.
    Large graphs without any record are left out: not everybody has a GPU.
    """
    graphs = {
        graph: [_group(table, name, *what, results) for name, what in lines.items()]
        for graph, (table, lines) in GRAPHS.items()
        if graph == "UMLS" or _has_records(table, lines, results)
    }
    variant = ON_FB15K_237[_HOPS][0]
    row = next(row for row in FB15K_237.rows if variant in (run.name for run in row.runs))
    paper = [row.paper[column][0] / 100 for column in FB15K_237.columns if column in row.paper]
    return {"figure": "lengths", "graphs": graphs, "the paper on FB15k-237": paper}


def _has_records(table: Table, lines: _Lines, results: Path) -> bool:
    runs = [run_of(table, name) for name, _ in lines.values()]
    return any(
        record_of(run, seed, table.task, results).exists() for run in runs for seed in run.each_seed
    )


def _group(table: Table, name: str, run: str, metric: Metric, results: Path) -> dict[str, Any]:
    records = complete_records(table, run_of(table, run), results)
    return {
        "name": name,
        "trained": records[0].settings["length"],
        "runs": [_by_length(record, metric) for record in records],
    }


def _by_length(record: Record, metric: Metric) -> list[float | None]:
    lengths = sorted(
        found.length
        for found in record.metrics
        if found.length is not None and replace(found, length=None) == metric
    )
    if not lengths:
        graph = record.settings["graph"]
        raise RecordError(f"a record of {graph} has no {in_words(metric)!r} by length.")
    return [record.metrics[replace(metric, length=length)] for length in lengths]


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Models on UMLS and FB15k-237, and our variant on WN11 by what it was trained on."""
    graphs = numbers["graphs"]
    with page(path, width=7.2, height=3.9) as figure:
        places = dict(zip(graphs, figure.subplots(1, len(graphs), squeeze=False)[0], strict=True))
        for letter, (graph, axes) in zip("abc", places.items(), strict=False):
            if graph == "WN11":  # other models, and so other colours
                _draw_groups(axes, graphs[graph], list(ON_WN11), shades(len(ON_WN11), "viridis"))
            else:
                _draw_groups(axes, graphs[graph], list(ON_UMLS), shades(len(ON_UMLS)))
            axes.set_title(f"({letter}) {graph}")
            axes.set_ylim(0, 1)
            axes.set_xlabel("relations in a test path")
            axes.set_ylabel("H@10" if graph == "WN11" else "MRR")
            if graph == "WN11":
                axes.legend(
                    title="our variant, trained\non paths of up to",
                    loc="lower right",
                    fontsize="small",
                )
            else:
                _shade(axes, graphs[graph][0]["trained"])
        lines = places["UMLS"].get_legend_handles_labels()[0]
        if "FB15k-237" in places:
            paper = numbers["the paper on FB15k-237"]
            lengths = range(1, len(paper) + 1)
            lines += places["FB15k-237"].plot(
                lengths, paper, "--", color="dimgrey", label="in the paper"
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


def _draw_groups(
    axes: Axes, groups: Sequence[dict[str, Any]], names: list[str], colours: list[str]
) -> None:
    """A dot for each run, a line through their means; a name has one colour in all pictures."""
    looks = dict(zip(names, zip(reversed(colours), _MARKERS, strict=False), strict=True))
    for group in groups:
        colour, marker = looks[group["name"]]
        means = [statistics.fmean(values) for values in zip(*group["runs"], strict=True)]
        lengths = range(1, len(means) + 1)
        for run in group["runs"]:
            axes.plot(lengths, run, marker, markersize=2.5, alpha=0.5, color=colour)
        axes.plot(lengths, means, color=colour, marker=marker, markersize=3.5, label=group["name"])
        axes.set_xlim(0.5, len(means) + 0.5)
        axes.set_xticks(lengths)
