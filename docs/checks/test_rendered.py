"""The tables in the docs are the rendered ones, and all of them are there."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from dcgraph.experiments.engine.tables import part
from dcgraph.experiments.tasks import TABLES, get_table

ROOT = Path(__file__).parents[2]
RENDER = runpy.run_path(str(ROOT / "docs" / "render.py"))
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in RENDER["PAGES"]}


@pytest.mark.parametrize("page", PAGES)
def test_the_docs_show_the_rendered_tables(page: str) -> None:
    """Which tables there are to be, other checks say."""
    assert RENDER["rendered"](PAGES[page]) == PAGES[page], "run `make tables`"


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_in_the_docs(name: str) -> None:
    """All columns of it, in one table or in parts."""
    pages = "".join(PAGES.values())
    parts = re.findall(rf"<!-- table {name}: (\w+) -->", pages)
    shown = {(column.name, of) for of in parts for column in part(get_table(name), of).columns}
    everything = {(column.name, column.part) for column in get_table(name).columns}
    assert f"<!-- table {name} -->" in pages or shown == everything


def test_every_benchmark_is_in_the_docs() -> None:
    scripts = [path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "common"]
    shown = re.findall(r"<!-- benchmark (\S+) -->", "".join(PAGES.values()))
    assert sorted(shown) == sorted(scripts)


def test_every_record_of_an_example_is_in_the_docs() -> None:
    recorded = [path.stem for path in (ROOT / "results" / "examples").glob("*.json")]
    shown = re.findall(r"<!-- example (\S+) -->", "".join(PAGES.values()))
    assert sorted(shown) == sorted(recorded)


def test_every_promise_is_in_the_docs() -> None:
    """Each program with a record; a figure that was not recorded says so."""
    programs = [
        path for path in (ROOT / "promises").glob("*.py") if "\ndef table(" in path.read_text()
    ]
    shown = re.findall(r"<!-- promise (\S+) -->", PAGES["docs/what-we-promise.md"])
    assert sorted(shown) == sorted(path.stem for path in programs) and len(shown) > 3
    recorded = {path.stem for path in (ROOT / "results" / "promises").glob("*.json")}
    assert recorded <= set(shown)
    for name in set(shown) - recorded:
        assert (
            f"Not recorded yet: run `python promises/{name}.py`" in PAGES["docs/what-we-promise.md"]
        )


def test_headlines_have_a_line_each_with_numbers_and_seeds() -> None:
    assert "<!-- headlines -->" in PAGES["README.md"]
    head, _, *lines = RENDER["headlines"]().splitlines()
    assert len(lines) == len(RENDER["HEADLINES"])
    for line in lines:
        assert line.count(" | ") == head.count(" | "), line
        _, paper, method, variant, rival, seeds = line.strip("| ").split(" | ")
        assert re.match(r"\d", variant) and re.match(r"\d", seeds), line
        assert all(re.match(r"[\d.]+( ± [\d.]+)?$|$", number) for number in (paper, variant)), line
        assert method == "not run" or re.match(r"\d", method), line
        assert not rival or re.fullmatch(r"\D+ [\d.]+( ± [\d.]+)?", rival), line


def test_a_rival_stands_beside_our_variant_also_where_it_is_better() -> None:
    """CoKE on FB13 by argmax."""
    (line,) = (line for line in RENDER["headlines"]().splitlines() if "FB13, MQ, by argmax" in line)
    assert "| 93.2 | CoKE 95.0 |" in line
