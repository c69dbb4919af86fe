"""Puts the tables of the docs in their places, from the records of runs and of benchmarks.

python docs/render.py; `make tables` does the same. A test fails where a page is out of date.
"""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

from dcgraph.tasks import get_table
from dcgraph.training.tables import as_text

ROOT = Path(__file__).parents[1]


def rendered(page: str) -> str:
    """A page with every table between its marks as the records have it."""

    def table(mark: re.Match[str]) -> str:
        text = as_text(get_table(mark[1]), ROOT / "results")
        return f"<!-- table {mark[1]} -->\n{text}\n<!-- end -->"

    def benchmark(mark: re.Match[str]) -> str:
        return f"<!-- benchmark {mark[1]} -->\n{benchmark_table(mark[1])}\n<!-- end -->"

    page = re.sub(r"<!-- table (\S+) -->\n.*?<!-- end -->", table, page, flags=re.DOTALL)
    return re.sub(r"<!-- benchmark (\S+) -->\n.*?<!-- end -->", benchmark, page, flags=re.DOTALL)


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
    for path in sorted((ROOT / "docs").glob("*.md")):
        before = path.read_text()
        after = rendered(before)
        if after != before:
            path.write_text(after)
