"""Puts the tables of the docs in their places, from the records of runs and of benchmarks.

python docs/render.py; `make tables` does the same, and `make docs-check` fails where a page is out
of date.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcgraph.experiments.engine.metrics import spread
from dcgraph.experiments.engine.tables import Cell, as_text, cells, part
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
    part: str = ""  # of a table whose columns come in parts


@dataclass(frozen=True)
class Headline:
    """A line of the README's table: one measure, by one protocol and one decoder."""

    name: str
    variant: Place  # ours; its seeds are counted
    method: Place | None = None  # the paper's method with the paper's settings; None: not run
    paper: Place | None = None  # the cell that has the paper's number
    rival: tuple[str, Place] | None = None  # its name, and the cell that has its published number


_BEST = "Our variant (preset best)"
_PAPERS_ADDITION, _DEEPPROBLOG = "The paper's method, tau 8", "DeepProbLog, 1 epoch, batch 1"
_PAPERS_LISTOPS, _ARB = "The paper's method, tau 1", "Arb., one parent, tau 2"


def _addition() -> Iterator[Headline]:
    for protocol, name, rivals in (
        ("best on test", "best of all test evaluations", True),
        ("clean", "clean: validation selects the weights", False),
    ):
        variant, method, rival = (
            Place("addition", row, protocol, "sample")
            for row in (_BEST, _PAPERS_ADDITION, _DEEPPROBLOG)
        )
        published = ("DeepProbLog", rival) if rivals else None
        yield Headline(f"MNIST addition, sums, {name}", variant, method, method, published)


def _listops() -> Iterator[Headline]:
    for measured, name, best in (
        ("task", "results", ("Arb. (Paulus et al.)", _ARB)),
        ("edge", "edges of the tree", ("Arb. (Paulus et al.)", _ARB)),
        ("d10", "results at twice the depth of training", ("LSTM", "LSTM")),
    ):
        variant, method, rival = (
            Place("listops", row, measured, "sample") for row in (_BEST, _PAPERS_LISTOPS, best[1])
        )
        yield Headline(f"ListOps, {name}, by sampling", variant, method, method, (best[0], rival))


def _paths() -> Iterator[Headline]:
    for graph, row, coke in (
        ("WN11", "Our variant", "CoKE"),
        ("FB13", "FB13: our variant", "FB13: CoKE"),
    ):
        for metric in ("H@10", "MQ"):
            variant, rival = (Place("paths", one, metric, "optimistic ties") for one in (row, coke))
            yield Headline(
                f"path queries on {graph}, {metric}, by argmax",
                variant,
                paper=variant,
                rival=("CoKE", rival),
            )
            yield Headline(
                "... beam search of width 16, bidirectional scoring",
                Place("paths", row, metric, "beam search, bidirectional"),
            )
    for length, name, row in (
        ("1", "single triples", "ComplEx, only triples"),
        ("10", "paths of 10 relations", "ComplEx-C"),
    ):
        variant, rival = (Place("fb15k-237", one, length) for one in ("Our variant", row))
        yield Headline(
            f"{name} on FB15k-237, MRR, by argmax",
            variant,
            paper=variant,
            rival=(row.partition(",")[0], rival),
        )


HEADLINES = (*_addition(), *_listops(), *_paths())


def rendered(page: str) -> str:
    """A page with every table between its marks as the records have it.

    ``<!-- table NAME: sample -->`` has only the columns of the part "sample".
    """

    def table(mark: re.Match[str]) -> str:
        whole, wanted = get_table(mark["name"]), mark["part"]
        text = as_text(part(whole, wanted) if wanted else whole, RESULTS)
        return f"{mark['mark']}\n{text}\n<!-- end -->"

    def benchmark(mark: re.Match[str]) -> str:
        return f"<!-- benchmark {mark[1]} -->\n{benchmark_table(mark[1])}\n<!-- end -->"

    def best(mark: re.Match[str]) -> str:
        return f"<!-- headlines -->\n{headlines()}\n<!-- end -->"

    opening = r"(?P<mark><!-- table (?P<name>[\w-]+)(: (?P<part>\w+))? -->)"

    def promise(mark: re.Match[str]) -> str:
        return f"<!-- promise {mark[1]} -->\n{promise_table(mark[1])}\n<!-- end -->"

    def example(mark: re.Match[str]) -> str:
        return f"<!-- example {mark[1]} -->\n{example_table(mark[1])}\n<!-- end -->"

    for pattern, fill in (
        (opening, table),
        (r"<!-- benchmark (\S+) -->", benchmark),
        (r"<!-- example (\S+) -->", example),
        (r"<!-- promise (\S+) -->", promise),
        ("<!-- headlines -->", best),
    ):
        page = re.sub(rf"{pattern}\n.*?<!-- end -->", fill, page, flags=re.DOTALL)
    return page


_COLUMNS = (
    "in per cent",
    "the paper",
    "the paper's method here",
    "our variant",
    "a published rival",
    "seeds",
)


def headlines() -> str:
    """The paper's most important numbers beside ours, and what each of them is."""
    found: dict[Place, Cell] = {}
    for name in sorted({line.variant.table for line in HEADLINES}):
        table = get_table(name)
        places = [
            Place(name, row.name, column.name, column.part)
            for row in table.rows
            for column in table.columns
        ]
        found |= dict(zip(places, cells(table, RESULTS), strict=True))
    return "\n".join(
        f"| {' | '.join(line)} |"
        for line in (
            _COLUMNS,
            ("---",) * len(_COLUMNS),
            *(_headline(line, found) for line in HEADLINES),
        )
    )


def _headline(line: Headline, found: Mapping[Place, Cell]) -> tuple[str, ...]:
    """The cells of a line; a place that is not in its table is a KeyError that names it."""
    variant = found[line.variant]
    method = found[line.method] if line.method else None
    published = found[line.paper].paper if line.paper else None
    rival = ""
    if line.rival:
        name, place = line.rival
        rival = f"{name} {_spread(*(found[place].paper or (None, None)))}"
    seeds = dict.fromkeys(cell.seeds for cell in (method, variant) if cell)
    return (
        line.name,
        _spread(*published) if published else "",
        _spread(method.mean, method.std) if method else "not run",
        _spread(variant.mean, variant.std),
        rival,
        " and ".join(f"{count}" for count in seeds),
    )


def _spread(mean: float | None, std: float | None) -> str:
    """One digit, and two where one would say that runs do not differ."""
    digits = 2 if std is not None and 0 < std < 0.05 else 1
    return spread(mean, std, f"{{:.{digits}f}}".format)


def benchmark_table(name: str) -> str:
    """What ``python benchmarks/NAME.py --table`` prints."""
    text: str = _script("benchmarks", name)["table"]()
    return text


def example_table(name: str) -> str:
    """What ``python examples/NAME.py`` printed when its record was made."""
    record = json.loads((RESULTS / "examples" / f"{name}.json").read_text())
    text: str = _script("examples", name)["table"](record["found"])
    return text


def promise_table(name: str) -> str:
    """What ``promises/NAME.py`` found when its record was made; with which code, and on what."""
    path = RESULTS / "promises" / f"{name}.json"
    if not path.exists():
        return f"*Not recorded yet: run `python promises/{name}.py`.*"
    record = json.loads(path.read_text())
    text: str = _script("promises", name)["table"](record["found"])
    made = f"dcgraph {record['code']}, torch {record['torch']}, {record['hardware']}"
    return f"{text}\n\n*Recorded with {made}.*"


def _script(folder: str, name: str) -> dict[str, Any]:
    """What a program defines, imported from where it is."""
    home = str(ROOT / folder)
    sys.path.insert(0, home)
    try:
        return runpy.run_path(f"{home}/{name}.py", run_name=folder)
    finally:
        sys.path.remove(home)


if __name__ == "__main__":
    for path in PAGES:
        before = path.read_text()
        after = rendered(before)
        if after != before:
            path.write_text(after)
