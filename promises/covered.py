"""Coverage of the library by its tests: the lines and branches that they run.

python promises/covered.py; `make coverage` does the same. The tests of the library run as in
`make quick`: once with the shape checks, once without. Everything in `src/dcgraph` except the
experiments counts, also what only a GPU or several ranks would run. Kernels run in Triton's
interpreter, which executes their lines as Python, so that they are seen; that says nothing of the
compiled ones. Lines for type checkers only and abstract methods are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path, PurePath
from typing import Any

from promised import ROOT, markdown, write

LEAST = 95.0  # per cent, of lines and of branches

SESSIONS = (
    ["tests", "--ignore", "tests/plain", "--jaxtyping-packages", "dcgraph,beartype.beartype"],
    ["tests/plain", "src", "--ignore", "tests/plain/experiments", "--doctest-modules"],
)
_NOT_OURS = ["--ignore", "tests/experiments", "--ignore", "src/dcgraph/experiments"]

_CONFIGURATION = """
[run]
branch = True
source_pkgs = dcgraph
omit = */experiments/*
data_file = {data}

[report]
exclude_also =
    if TYPE_CHECKING:
    \\.\\.\\.$
"""


def measure(folder: Path, processes: int) -> dict[str, Any]:
    """The report of coverage.py, as JSON."""
    config, report = folder / "coverage.ini", folder / "report.json"
    config.write_text(_CONFIGURATION.format(data=folder / "data"))
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--cov",
        f"--cov-config={config}",
        "--cov-append",
    ]
    words += ["--cov-report=", "-p", "no:cacheprovider", *_NOT_OURS]
    words += ["--numprocesses", str(processes), "--dist", "worksteal"] if processes > 1 else []
    for session in SESSIONS:
        subprocess.run([*words, *session], cwd=ROOT, check=True)
    coverage = [sys.executable, "-m", "coverage", "json", f"--rcfile={config}", "-o", str(report)]
    subprocess.run([*coverage, "-q"], cwd=ROOT, check=True)
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def summary(report: dict[str, Any]) -> dict[str, Any]:
    """Counts by package or module, and the lines that were not run."""
    keys = ("num_statements", "covered_lines", "num_branches", "covered_branches")
    rows: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(keys, 0))
    missing = {}
    for name, one in report["files"].items():
        parts = PurePath(name).parts[2:]
        package = parts[0] if len(parts) > 1 else "modules of the package itself"
        for key in keys:
            rows[package][key] += one["summary"][key]
        if one["missing_lines"] or one["missing_branches"]:
            missing[PurePath(*parts).as_posix()] = {
                "lines": one["missing_lines"],
                "branches": one["missing_branches"],
            }
    return {"packages": dict(sorted(rows.items())), "missing": missing}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=min(4, os.cpu_count() or 1))
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dcgraph-coverage-") as folder:
        found = summary(measure(Path(folder), options.processes))
    record = {**found, "seconds": round(time.monotonic() - began)}
    write("covered", record)
    print(table(record))
    print(json.dumps(found["missing"]))
    lines, branches = _shares(_total(record))
    if min(lines, branches) < LEAST:
        raise SystemExit(f"less than {LEAST:.0f} % of lines or branches are run by a test")


def _total(found: dict[str, Any]) -> dict[str, int]:
    rows = list(found["packages"].values())
    return {key: sum(row[key] for row in rows) for key in rows[0]}


def _shares(row: dict[str, int]) -> tuple[float, float]:
    lines = 100 * row["covered_lines"] / max(1, row["num_statements"])
    return lines, 100 * row["covered_branches"] / max(1, row["num_branches"])


def table(found: dict[str, Any]) -> str:
    """The record as Markdown."""
    rows = [["part of the library", "lines", "run by tests", "branches", "taken by tests"]]
    for name, row in {**found["packages"], "all": _total(found)}.items():
        lines, branches = (f"{share:.1f} %" for share in _shares(row))
        counts = (f"{row[key]:,}" for key in ("num_statements", "num_branches"))
        rows.append([name, next(counts), lines, next(counts), branches])
    return markdown(rows)


if __name__ == "__main__":
    main()
