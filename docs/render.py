"""Puts the tables of the docs in their places, from the records of runs and of benchmarks.

python docs/render.py; `make tables` does the same. A test fails where a page is out of date.
"""

from __future__ import annotations

import re
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

from dcgraph.experiments.engine.tables import as_json, as_text, part
from dcgraph.experiments.tasks import get_table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "benchmarks" / "README.md",
]


@dataclass(frozen=True)
class Headline:
    """A number of the paper, and where a table has it of our best and of the paper's settings."""

    name: str
    table: str
    best: tuple[str, str]  # row and column
    papers: tuple[str, str] | None = None


_ADDITION, _LISTOPS, _BEST = "Ours, tau 8", "Ours, tau 1", "Ours, preset best"
HEADLINES = (
    Headline(
        "MNIST addition, sums",
        *("addition", (_BEST, "best on test, sample"), (_ADDITION, "best on test, sample")),
    ),
    Headline("ListOps, results", "listops", (_BEST, "task, argmax"), (_LISTOPS, "task, sample")),
    Headline(
        "ListOps, edges of the tree", "listops", (_BEST, "edge, argmax"), (_LISTOPS, "edge, sample")
    ),
    Headline(
        "ListOps, results at twice the depth of training",
        *("listops", (_BEST, "d10, argmax"), (_LISTOPS, "d10, sample")),
    ),
    *(
        Headline(how or f"path queries on {graph}, {metric}", "paths", (row, f"{metric}, {way}"))
        for graph, row in (("WN11", "Ours"), ("FB13", "FB13: ours"))
        for metric in ("H@10", "MQ")
        for how, way in (
            ("", "ties as the paper"),
            ("... looking back", "argmax looking back"),
            ("... by a beam that looks back", "beam looking back"),
        )
    ),
    Headline("paths of 10 relations on FB15k-237, MRR", "fb15k-237", ("Ours", "10")),
    Headline("... by a beam", "fb15k-237-beam", ("Ours", "10")),
)


def rendered(page: str) -> str:
    """A page with every table between its marks as the records have it.

    ``<!-- table NAME: sample -->`` has the columns whose names end in "sample".
    """

    def table(mark: re.Match[str]) -> str:
        whole, ending = get_table(mark["name"]), mark["ending"]
        text = as_text(part(whole, ending) if ending else whole, RESULTS)
        return f"{mark['mark']}\n{text}\n<!-- end -->"

    def benchmark(mark: re.Match[str]) -> str:
        return f"<!-- benchmark {mark[1]} -->\n{benchmark_table(mark[1])}\n<!-- end -->"

    def best(mark: re.Match[str]) -> str:
        return f"<!-- headlines -->\n{headlines()}\n<!-- end -->"

    opening = r"(?P<mark><!-- table (?P<name>[\w-]+)(: (?P<ending>\w+))? -->)"
    for pattern, fill in (
        (opening, table),
        (r"<!-- benchmark (\S+) -->", benchmark),
        ("<!-- headlines -->", best),
    ):
        page = re.sub(rf"{pattern}\n.*?<!-- end -->", fill, page, flags=re.DOTALL)
    return page


def headlines() -> str:
    """The paper's most important numbers beside ours."""
    lines = ["| in per cent | the paper | its settings here | ours |", "|---|---|---|---|"]
    for line in HEADLINES:
        cells = {(c["row"], c["column"]): c for c in as_json(get_table(line.table), RESULTS)}
        best = cells[line.best]
        papers = cells[line.papers] if line.papers else {**best, "mean": None}
        published = papers["paper"] or (None, None)
        numbers = published, (papers["mean"], papers["std"]), (best["mean"], best["std"])
        lines.append(f"| {line.name} | {' | '.join(_spread(*n) for n in numbers)} |")
    return "\n".join(lines)


def _spread(mean: float | None, std: float | None) -> str:
    return "" if mean is None else f"{mean:.1f}" + ("" if std is None else f" ± {std:.1f}")


def benchmark_table(name: str) -> str:
    """What ``python benchmarks/NAME.py --table`` prints."""
    folder = ROOT / "benchmarks"
    sys.path.insert(0, str(folder))  # as for a script: where it imports from
    try:
        names = runpy.run_path(str(folder / f"{name}.py"), run_name="benchmark")
    finally:
        sys.path.remove(str(folder))
    table: str = names["table"]()
    return table


if __name__ == "__main__":
    for path in PAGES:
        before = path.read_text()
        after = rendered(before)
        if after != before:
            path.write_text(after)
