"""Puts the tables of the docs in their places, from the records of runs and of benchmarks.

python docs/render.py; `make tables` does the same, and `make docs-check` fails where a page is out
of date.
"""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
class Place:
    """A cell of a table: what we measured there, and what was published."""

    table: str
    row: str
    column: str


@dataclass(frozen=True)
class Headline:
    """A line of the README's table: one measure, by one protocol and one decoder."""

    name: str
    variant: Place  # ours; its seeds are counted
    adds: str  # what our variant has, or is given, that the paper's method has not
    method: Place | None = None  # the paper's method with the paper's settings; None: not run
    paper: Place | None = None  # the cell that has the paper's number
    rival: tuple[str, Place] | None = None  # its name, and the cell that has its published number


_PAPERS_ADDITION, _PAPERS_LISTOPS, _BEST = (
    "The paper's method, tau 8",
    "The paper's method, tau 1",
    "Our variant (preset best)",
)
_DEEPPROBLOG = "DeepProbLog, 1 epoch, batch 1"
_AS_ABOVE = "as above"
_RULES = "rules of parsing ([which](docs/listops.md#what-preset-best-is-given))"


def _addition() -> Iterator[Headline]:
    for protocol, name, adds, rival in (
        ("best on test", "best of all test evaluations", "augmentation, 60 epochs", True),
        ("clean", "clean: held-out pairs choose the weights", _AS_ABOVE, False),
    ):
        column = f"{protocol}, sample"
        method = Place("addition", _PAPERS_ADDITION, column)
        yield Headline(
            f"MNIST addition, sums, {name}",
            Place("addition", _BEST, column),
            adds,
            method,
            method,
            ("DeepProbLog", Place("addition", _DEEPPROBLOG, column)) if rival else None,
        )


def _listops() -> Iterator[Headline]:
    for measured, name in (
        ("task", "results"),
        ("edge", "edges of the tree"),
        ("d10", "results at twice the depth of training"),
    ):
        for decoder, how in (("sample", "by sampling, as the paper"), ("argmax", "by argmax")):
            column = f"{measured}, {decoder}"
            method = Place("listops", _PAPERS_LISTOPS, column)
            yield Headline(
                f"ListOps, {name}, {how}",
                Place("listops", _BEST, column),
                _RULES if column == "task, sample" else _AS_ABOVE,
                method,
                method if decoder == "sample" else None,
            )


def _paths() -> Iterator[Headline]:
    for graph, row, coke in (
        ("WN11", "Our variant", "CoKE"),
        ("FB13", "FB13: our variant", "FB13: CoKE"),
    ):
        for metric in ("H@10", "MQ"):
            as_paper = f"{metric}, optimistic ties"
            yield Headline(
                f"path queries on {graph}, {metric}, by argmax, optimistic ties, as the paper",
                Place("paths", row, as_paper),
                "hard hops, our settings",
                paper=Place("paths", row, as_paper),
                rival=("CoKE", Place("paths", coke, as_paper)),
            )
            for column, how in (
                ("argmax, bidirectional", "bidirectional scoring"),
                ("beam search, bidirectional", "bidirectional scoring, beam search of width 16"),
            ):
                yield Headline(
                    f"... {how}",
                    Place("paths", row, f"{metric}, {column}"),
                    _AS_ABOVE,
                )
    yield Headline(
        "paths of 10 relations on FB15k-237, MRR, by argmax, as the paper; other walks",
        Place("fb15k-237", "Our variant", "10"),
        "hard hops, our settings",
        paper=Place("fb15k-237", "Our variant", "10"),
    )
    yield Headline(
        "... beam search of width 16",
        Place("fb15k-237-beam", "Our variant", "10"),
        _AS_ABOVE,
    )


HEADLINES = (*_addition(), *_listops(), *_paths())


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


_COLUMNS = (
    "in per cent",
    "the paper",
    "the paper's method here",
    "our variant",
    "best published rival",
    "seeds",
    "what our variant adds",
)


def headlines() -> str:
    """The paper's most important numbers beside ours, and what each of them is."""
    tables = {place.table for line in HEADLINES for place in (line.variant, line.paper) if place}
    found = {
        Place(name, cell["row"], cell["column"]): cell
        for name in sorted(tables)
        for cell in as_json(get_table(name), RESULTS)
    }
    return "\n".join(
        f"| {' | '.join(cells)} |"
        for cells in (
            _COLUMNS,
            ("---",) * len(_COLUMNS),
            *(_headline(line, found) for line in HEADLINES),
        )
    )


def _headline(line: Headline, found: Mapping[Place, Mapping[str, Any]]) -> tuple[str, ...]:
    """The cells of a line; a place that is not in its table is a KeyError that names it."""
    variant = found[line.variant]
    method = found[line.method] if line.method else None
    rival = ""
    if line.rival:
        name, place = line.rival
        rival = f"{name} {_spread(*found[place]['paper'])}"
    seeds = dict.fromkeys(cell["seeds"] for cell in (method, variant) if cell)
    return (
        line.name,
        _spread(*found[line.paper]["paper"]) if line.paper and found[line.paper]["paper"] else "",
        _spread(method["mean"], method["std"]) if method else "not run",
        _spread(variant["mean"], variant["std"]),
        rival,
        " and ".join(f"{count}" for count in seeds),
        line.adds,
    )


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
