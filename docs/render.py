"""Puts the tables of the docs in their places, from the records in results/.

python docs/render.py; `make tables` does the same. A test fails where a page is out of date.
"""

from __future__ import annotations

import re
from pathlib import Path

from dcgraph.tasks import get_table
from dcgraph.training.tables import as_text

ROOT = Path(__file__).parents[1]


def rendered(page: str) -> str:
    """A page with every table between its marks as the records have it."""

    def table(mark: re.Match[str]) -> str:
        text = as_text(get_table(mark[1]), ROOT / "results")
        return f"<!-- table {mark[1]} -->\n{text}\n<!-- end -->"

    return re.sub(r"<!-- table (\S+) -->\n.*?<!-- end -->", table, page, flags=re.DOTALL)


if __name__ == "__main__":
    for path in sorted((ROOT / "docs").glob("*.md")):
        before = path.read_text()
        after = rendered(before)
        if after != before:
            path.write_text(after)
