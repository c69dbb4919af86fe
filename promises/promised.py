"""What the programs of this folder share: the record of each, and its table."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results" / "promises"


def write(name: str, found: dict[str, Any]) -> None:
    """The record of a program: what it found, with which code, and on what."""
    import torch  # what is measured may start before it

    from dcgraph.experiments.engine.files import write_json
    from dcgraph.experiments.engine.provenance import code_version

    record = {
        "program": f"promises/{name}.py",
        "code": code_version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "hardware": f"{os.cpu_count()} CPU cores",
        "found": found,
    }
    write_json(RECORDS / f"{name}.json", record, indent=1)


def read(name: str) -> dict[str, Any]:
    """The record of a program."""
    stored: dict[str, Any] = json.loads((RECORDS / f"{name}.json").read_text())
    return stored


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table; its first row is the head."""
    head, *others = rows
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *others)]
    return "\n".join(lines)
