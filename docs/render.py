"""Puts the tables of the docs in their places, from the records of runs and of benchmarks.

python docs/render.py; `make tables` does the same. A test fails where a page is out of date.
"""

from __future__ import annotations

import re
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

from dcgraph.tasks import get_table
from dcgraph.training.tables import as_json, as_text, part

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "benchmarks" / "README.md",
]


@dataclass(frozen=True)
class Headline:
    """A number of the paper, and where the tables have it of its model and of ours."""

    name: str
    table: str
    papers: tuple[str, str]  # row and column
    best: tuple[str, str]


_ADDITION, _LISTOPS, _BEST = "Ours, tau 8", "Ours, tau 1", "Ours, preset best"
_PAPERS_WN11, _WN11 = "Ours, the paper's tau and noise", "Ours, paths up to 5"
HEADLINES = (
    Headline(
        "MNIST addition, sums",
        *("addition", (_ADDITION, "best on test, sample"), (_BEST, "best on test, sample")),
    ),
    Headline("ListOps, results", "listops", (_LISTOPS, "task, sample"), (_BEST, "task, argmax")),
    Headline(
        "ListOps, edges of the tree", "listops", (_LISTOPS, "edge, sample"), (_BEST, "edge, argmax")
    ),
    Headline(
        "ListOps, results at twice the depth of training",
        *("listops", (_LISTOPS, "d10, sample"), (_BEST, "d10, argmax")),
    ),
    *(
        Headline(
            f"path queries on WN11, {metric}",
            *("paths", (_PAPERS_WN11, f"{metric}, ties as the paper")),
            (_WN11, f"{metric}, ties as the paper"),
        )
        for metric in ("H@10", "MQ")
    ),
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
    """The paper's most important numbers beside ours; what has not been run is left open."""
    lines = ["| in per cent | the paper | its settings here | ours |", "|---|---|---|---|"]
    for line in HEADLINES:
        cells = {(c["row"], c["column"]): c for c in as_json(get_table(line.table), RESULTS)}
        theirs, best = cells[line.papers], cells[line.best]
        numbers = theirs["paper"], (theirs["mean"], theirs["std"]), (best["mean"], best["std"])
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
