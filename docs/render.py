"""Puts tables and help texts in their places in the docs, from the records and the commands.

python docs/render.py; `make tables` does the same, and `make docs-check` fails where a page is out
of date.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from unittest import mock

from dcgraph.experiments import cli
from dcgraph.experiments.compare.chains_record import chains_table, read_chains
from dcgraph.experiments.engine.metrics import spread
from dcgraph.experiments.engine.tables import Cell, Table, as_csv, cells, made_of, part, was_run
from dcgraph.experiments.tasks import TABLES, get_table, get_task

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
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
    front: bool = False  # whether the README has it too


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
        line = Headline(f"MNIST addition, sums, {name}", variant, method, method, published)
        yield replace(line, front=not rivals)


def _listops() -> Iterator[Headline]:
    for measured, name, best in (
        ("task", "results", ("Arb. (Paulus et al.)", _ARB)),
        ("edge", "edges of the tree", ("Arb. (Paulus et al.)", _ARB)),
        ("d10", "results at twice the depth of training", ("LSTM", "LSTM")),
    ):
        variant, method, rival = (
            Place("listops", row, measured, "sample") for row in (_BEST, _PAPERS_LISTOPS, best[1])
        )
        line = Headline(f"ListOps, {name}, by sampling", variant, method, method, (best[0], rival))
        yield replace(line, front=measured == "task")


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
                front=metric == "H@10",
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
            front=length == "10",
        )


HEADLINES = (*_addition(), *_listops(), *_paths())


@dataclass(frozen=True)
class Comparison:
    """The same runs without and with the two methods."""

    name: str
    without: Place
    both: Place


def _comparison(
    name: str, table: str, rows: tuple[str, str], column: str, part: str = ""
) -> Comparison:
    without, both = (Place(table, row, column, part) for row in rows)
    return Comparison(name, without, both)


_PARTS = ("neither", "TempMatch and DropRes")
_ABLATION = ("without both", _PAPERS_LISTOPS)
_SMALL = ("without both", "The paper's method, settings for a small graph")
COMPARISONS = (
    _comparison("MNIST addition, sums", "addition-ablation", _PARTS, "clean", "sample"),
    _comparison("... of three digits", "addition-chain", _PARTS, "clean", "sample"),
    _comparison("ListOps, results", "listops-ablation", _ABLATION, "task", "sample"),
    _comparison("ListOps, edges of the tree", "listops-ablation", _ABLATION, "edge", "sample"),
    _comparison("UMLS, triples, MRR", "paths-small", _SMALL, "1"),
    _comparison("UMLS, paths of 10 relations, MRR", "paths-small", _SMALL, "10"),
)


def rendered(page: str) -> str:
    """A page with what stands between its marks as the records and the commands have it.

    ``<!-- table NAME: sample | task | edge -->`` has two columns of the part "sample".
    """
    for pattern, fill in _FILLS.items():
        page = re.sub(
            rf"(?P<mark><!-- {pattern} -->)\n.*?<!-- end -->",
            lambda found, fill=fill: f"{found['mark']}\n{fill(found)}\n<!-- end -->",  # type: ignore[misc]
            page,
            flags=re.DOTALL,
        )
    return page


def _table(mark: re.Match[str]) -> str:
    whole, wanted = get_table(mark["name"]), mark["part"]
    columns = [name.strip() for name in (mark["columns"] or "").split("|")[1:]]
    return narrow(part(whole, wanted) if wanted else whole, columns)


def _benchmark(mark: re.Match[str]) -> str:
    table = benchmark_table(mark["name"], *([mark["part"]] if mark["part"] else []))
    if mark["name"] not in _with_files():
        return table
    return f"{table}\n\n[All rows and columns](tables/benchmark-{mark['name']}.csv)."


def _example(mark: re.Match[str]) -> str:
    return recorded_table("examples", mark["name"], f"examples/record.py {mark['name']}")


def _promise(mark: re.Match[str]) -> str:
    return recorded_table("promises", mark["name"], f"promises/{mark['name']}.py")


_NAME = r"(?P<name>[\w-]+)"
_FILLS: dict[str, Callable[[re.Match[str]], str]] = {
    rf"table {_NAME}(: (?P<part>\w+))?(?P<columns>( \| [^|>]+?)*)": _table,
    rf"benchmark {_NAME}(: (?P<part>\w+))?": _benchmark,
    rf"example {_NAME}": _example,
    r"chains (?P<categories>\d+)": lambda mark: chains_table(
        read_chains(RESULTS / "compare" / "chains.json"), categories=int(mark["categories"])
    ),
    rf"promise {_NAME}": _promise,
    rf"presets {_NAME}: (?P<part>[\w, -]+)": lambda mark: preset_table(mark["name"], mark["part"]),
    r"help(?P<command>(?: [\w-]+)*)": lambda mark: (
        f"```text\n{help_of(mark['command'].split())}\n```"
    ),
    "headlines(?P<front>: front)?": lambda mark: headlines(front=bool(mark["front"])),
    "methods": lambda mark: comparisons(),
    "not run": lambda mark: rows_without_records(),
}
"""By the text of a mark: what stands after it."""


_COLUMNS = (
    "in per cent",
    "the paper",
    "the paper's method here",
    "our variant",
    "a published rival",
    "seeds",
)


def narrow(table: Table, columns: Sequence[str] = ()) -> str:
    """A table for a page: the rows with records, and the paper's numbers in brackets.

    Args:
        table: the whole or a part of it.
        columns: only these; all of them if there are none.
    """
    by_title = {column.title: column for column in table.columns}
    if unknown := set(columns) - set(by_title):
        raise ValueError(f"table {table.name!r} has no column {sorted(unknown)}.")
    shown = [by_title[title] for title in columns or by_title]
    run = [row for row in table.rows if was_run(table, row, RESULTS)]
    filled = {(cell.row, cell.column): cell for cell in cells(table, RESULTS)}
    with_paper = any(column in row.paper for row in run for column in shown)
    notes = any(row.given for row in run)
    header = ["", *(column.title for column in shown), *(["given"] if notes else [])]
    lines = []
    for row in run:
        line = [row.name]
        for column in shown:
            cell = filled[row.name, column.title]
            own = _spread(cell.mean, cell.std if column.spread else None)
            line.append(f"{own} ({_spread(*cell.paper)})" if cell.paper else own)
        lines.append([*line, row.given] if notes else line)
    made = made_of([filled[row.name, column.title] for row in run for column in shown])
    brackets = " The paper's numbers are in brackets." if with_paper else ""
    link = f"[All columns](tables/{table.name}.csv)."
    return f"{table.title} {made}{brackets} {link}\n\n{_markdown(header, lines)}"


def rows_without_records() -> str:
    """What is still to run, table by table."""
    lines = []
    for name in TABLES:
        table = get_table(name)
        open_ = [row.name for row in table.rows if not was_run(table, row, RESULTS)]
        if open_:
            lines.append((f"`{name}`", "; ".join(open_)))
    return _markdown(("table", "rows without a record"), lines)


def tables() -> dict[Path, str]:
    """Every table with all of its columns, as the files that the pages link to."""
    folder = ROOT / "docs" / "tables"
    made = {folder / f"{name}.csv": as_csv(get_table(name), RESULTS) for name in TABLES}
    for name in _with_files():
        made[folder / f"benchmark-{name}.csv"] = _script("benchmarks", name)["whole"]()
    return made


def _with_files() -> list[str]:
    """The benchmarks whose pages show a part of what was measured, and link to a file with all."""
    programs = sorted((ROOT / "benchmarks").glob("*.py"))
    return [path.stem for path in programs if "\ndef whole(" in path.read_text()]


def notebook() -> str:
    """docs/own-model.md to click through: its text and its code, cell by cell."""
    page = (ROOT / "docs" / "own-model.md").read_text()
    cells_ = []
    code = r"^```python\n(.*?)^```$"
    for k, text in enumerate(re.split(code, page, flags=re.MULTILINE | re.DOTALL)):
        kind = "code" if k % 2 else "markdown"
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{k}", "metadata": {}}
        cell["source"] = text.strip().splitlines(keepends=True)
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        if text.strip():
            cells_.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {"cells": cells_, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def headlines(front: bool = False) -> str:
    """The paper's most important numbers beside ours; only those of the front page, if asked."""
    lines = [line for line in HEADLINES if line.front or not front]
    found = _cells({line.variant.table for line in lines})
    return _markdown(_COLUMNS, [_headline(line, found) for line in lines])


def comparisons() -> str:
    """What the two methods bring."""
    found = _cells({line.both.table for line in COMPARISONS})
    rows = []
    for line in COMPARISONS:
        without, both = found[line.without], found[line.both]
        seeds = dict.fromkeys((without.seeds, both.seeds))
        numbers = (_spread(cell.mean, cell.std) for cell in (without, both))
        rows.append((line.name, *numbers, " and ".join(map(str, seeds))))
    columns = ("in per cent", "plain Gumbel-softmax", "TempMatch and DropRes", "seeds")
    return _markdown(columns, rows)


def _cells(tables: Iterable[str]) -> dict[Place, Cell]:
    """The cells of some tables by their places."""
    found: dict[Place, Cell] = {}
    for name in sorted(tables):
        table = get_table(name)
        places = [
            Place(name, row.name, column.name, column.part)
            for row in table.rows
            for column in table.columns
        ]
        found |= dict(zip(places, cells(table, RESULTS), strict=True))
    return found


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, ("---",) * len(columns), *rows))


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


def benchmark_table(name: str, *part: str) -> str:
    """What ``python benchmarks/NAME.py --table`` prints, or a part of it."""
    text: str = _script("benchmarks", name)["table"](*part)
    return text


def recorded_table(folder: str, name: str, command: str) -> str:
    """What a program of examples/ or promises/ found, and with what ``command`` recorded it."""
    path = RESULTS / folder / f"{name}.json"
    if not path.exists():
        return f"*There is no record yet: `python {command}`.*"
    record = json.loads(path.read_text())
    text: str = _script(folder, name)["table"](record["found"])
    made = f"dcgraph {record['code']}, torch {record['torch']}, {record['hardware']}"
    return f"{text}\n\n*Recorded with {made}.*"


def help_of(command: Sequence[str]) -> str:
    """What ``dcgraph COMMAND --help`` prints on a terminal of 80 columns."""
    shown, narrow_terminal = io.StringIO(), mock.patch.dict(os.environ, COLUMNS="80")
    with narrow_terminal, contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        cli.main([*command, "--help"])
    return shown.getvalue().strip()


def reasons() -> dict[tuple[str, str], dict[str, tuple[str, str]]]:
    """Where the values of presets are from and why, by task and presets, and then by setting."""
    found: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    for title, lines in tomllib.loads((ROOT / "docs" / "presets.toml").read_text()).items():
        task, _, presets = title.partition(".")
        of_one = found[task, presets] = {}
        for names, (source, reason) in lines.items():
            for k, name in enumerate(names.split(", ")):
                if name in of_one:
                    raise ValueError(f"presets.toml: {title}: {name} has two reasons.")
                of_one[name] = source, "the same" if k else reason
    return found


def preset_table(task: str, presets: str) -> str:
    """What presets of a task have in place of its defaults, and why.

    Raises:
        ValueError: a value has no reason, or a reason no value.
    """
    loaded, names = get_task(task), presets.split(", ")
    default, shown = loaded.settings(), [loaded.presets[name] for name in names]
    fitted = {setting for name in names for setting in loaded.open_settings.get(name, ())}
    values = {
        one.name: [getattr(settings, one.name) for settings in (default, *shown)]
        for one in fields(loaded.settings)
    }
    differing = {name for name, some in values.items() if set(some) != {some[0]}} | fitted
    why = reasons()[task, presets]
    if wrong := differing ^ set(why):
        raise ValueError(f"presets.toml: {task}.{presets}: value or reason only: {sorted(wrong)}.")
    header = ("setting", "default", *(f"`{name}`" for name in names), "from", "why")
    lines = []
    for name, reason in why.items():
        start, *own = (str(value) for value in values[name])
        lines.append((f"`{name}`", start, *(["fitted"] if name in fitted else own), *reason))
    return _markdown(header, lines)


def _script(folder: str, name: str) -> dict[str, Any]:
    """What a program defines, imported from where it is."""
    home = str(ROOT / folder)
    sys.path.insert(0, home)
    try:
        return runpy.run_path(f"{home}/{name}.py", run_name=folder)
    finally:
        sys.path.remove(home)


if __name__ == "__main__":
    made = {path: rendered(path.read_text()) for path in PAGES}
    made[ROOT / "docs" / "own-model.ipynb"] = notebook()
    for path, text in {**made, **tables()}.items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
