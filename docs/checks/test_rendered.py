"""The tables in the docs are the rendered ones, and all of them are there."""

from __future__ import annotations

import csv
import json
import re
import runpy
from pathlib import Path

import pytest

from dcgraph.experiments.tasks import TABLES

ROOT = Path(__file__).parents[2]
RENDER = runpy.run_path(str(ROOT / "docs" / "render.py"))
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in RENDER["PAGES"]}


@pytest.mark.parametrize("page", PAGES)
def test_the_docs_show_the_rendered_tables(page: str) -> None:
    """Which tables there are to be, other checks say."""
    assert RENDER["rendered"](PAGES[page]) == PAGES[page], "run `make tables`"


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_in_the_docs(name: str) -> None:
    """The columns that matter on a page, and all of them in a file that the page links to."""
    pages = "".join(PAGES.values())
    assert re.search(rf"<!-- table {name}[: ]", pages)
    assert f"](tables/{name}.csv)" in pages


def test_every_benchmark_with_a_file_links_to_it() -> None:
    """Its page shows a part of what was measured; the file has all of it, row by row."""
    named = RENDER["_with_files"]()
    assert {"accuracy", "mix", "paths"} <= set(named)
    for name in named:
        records = ROOT.glob(f"benchmarks/results/{name}-*.json")
        measured = sum(len(json.loads(record.read_text())["rows"]) for record in records)
        file = f"tables/benchmark-{name}.csv"
        lines = list(csv.reader((ROOT / "docs" / file).read_text().splitlines()))
        assert len(lines) == 1 + measured and {len(line) for line in lines} == {len(lines[0])}
        assert any(f"]({file})" in page for page in PAGES.values())


def test_the_files_of_the_tables_are_up_to_date() -> None:
    files = RENDER["tables"]()
    assert {path.name for path in files} == {p.name for p in (ROOT / "docs/tables").iterdir()}
    for path, text in files.items():
        assert path.read_text() == text, "run `make tables`"


def test_the_notebook_is_the_page() -> None:
    book = json.loads((ROOT / "docs" / "own-model.ipynb").read_text())
    assert (ROOT / "docs" / "own-model.ipynb").read_text() == RENDER["notebook"](), "make tables"
    code = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
    page = PAGES["docs/own-model.md"]
    assert code == [b.strip() for b in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)]


def test_a_table_with_an_unknown_column_is_refused() -> None:
    with pytest.raises(ValueError, match="no column"):
        RENDER["rendered"]("<!-- table addition | tasks -->\n<!-- end -->")


def test_rows_without_records_are_in_one_place() -> None:
    for page, text in PAGES.items():
        if page != "docs/not-run.md":
            for row in re.findall(r"^\| .*", text, flags=re.MULTILINE):
                assert row.count("| not run |") != row.count("|") - 2, f"{page}: {row}"
    assert "FB13: TransE-C" in PAGES["docs/not-run.md"]


def test_every_benchmark_is_in_the_docs() -> None:
    scripts = [path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "common"]
    shown = re.findall(r"<!-- benchmark ([\w-]+)(?:: \w+)? -->", "".join(PAGES.values()))
    assert sorted(set(shown)) == sorted(scripts)


def test_every_record_of_an_example_is_in_the_docs() -> None:
    recorded = [path.stem for path in (ROOT / "results" / "examples").glob("*.json")]
    shown = re.findall(r"<!-- example (\S+) -->", "".join(PAGES.values()))
    assert sorted(shown) == sorted(recorded)


def test_every_promise_is_in_the_docs() -> None:
    """Each program with a record; a figure that was not recorded says so."""
    programs = [
        path for path in (ROOT / "promises").glob("*.py") if "\ndef table(" in path.read_text()
    ]
    pages = "".join(PAGES[f"docs/{name}.md"] for name in ("what-we-promise", "how-it-is-tested"))
    shown = re.findall(r"<!-- promise (\S+) -->", pages)
    assert sorted(shown) == sorted(path.stem for path in programs) and len(shown) > 3
    recorded = {path.stem for path in (ROOT / "results" / "promises").glob("*.json")}
    assert recorded <= set(shown)
    for name in set(shown) - recorded:
        assert f"Not recorded yet: run `python promises/{name}.py`" in pages


def test_headlines_have_a_line_each_with_numbers_and_seeds() -> None:
    assert "<!-- headlines -->" in PAGES["docs/headlines.md"]
    assert "<!-- headlines: front -->" in PAGES["README.md"]
    assert len(RENDER["headlines"](front=True).splitlines()) == 2 + 5
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
