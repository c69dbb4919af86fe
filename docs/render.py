"""Puts the tables of the docs in their places, from the records of runs and of benchmarks.

python docs/render.py; `make tables` does the same. A test fails where a page is out of date.
"""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

from dcgraph.tasks import get_table
from dcgraph.training.tables import as_text, part

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "benchmarks" / "README.md"]


def rendered(page: str) -> str:
    """A page with every table between its marks as the records have it.

    ``<!-- table NAME: sample -->`` has the columns whose names end in "sample".
    """

    def table(mark: re.Match[str]) -> str:
        whole, ending = get_table(mark["name"]), mark["ending"]
        text = as_text(part(whole, ending) if ending else whole, ROOT / "results")
        return f"{mark['mark']}\n{text}\n<!-- end -->"

    def benchmark(mark: re.Match[str]) -> str:
        return f"<!-- benchmark {mark[1]} -->\n{benchmark_table(mark[1])}\n<!-- end -->"

    opening = r"(?P<mark><!-- table (?P<name>[\w-]+)(: (?P<ending>\w+))? -->)"
    page = re.sub(rf"{opening}\n.*?<!-- end -->", table, page, flags=re.DOTALL)
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
    for path in PAGES:
        before = path.read_text()
        after = rendered(before)
        if after != before:
            path.write_text(after)
