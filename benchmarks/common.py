"""What the benchmarks share: one record per device, and tables printed from the records alone."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import dcgraph as dc
from dcgraph.files import write_json

_RESULTS = Path(__file__).parent / "results"

Record = dict[str, Any]


def main(
    benchmark: str,
    description: str,
    measure: Callable[[str], Record],
    table: Callable[[], str],
) -> None:
    """The command line of a benchmark; ``measure`` is told the device."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--table", action="store_true", help="print the records as Markdown")
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    parser.add_argument("--device", nargs="+", choices=devices, default=devices)
    options = parser.parse_args()
    if options.table:
        print(table())
        return
    for device in options.device:
        record = {
            "benchmark": benchmark,
            "dcgraph": dc.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": _machine(device),
            **measure(device),
        }
        path = _RESULTS / f"{benchmark}-{device}.json"
        write_json(path, record, indent=1)
        print(f"wrote {path}")
    print(f"\n{table()}")


def records(benchmark: str) -> list[Record]:
    """The records there are, one per device."""
    return [json.loads(path.read_text()) for path in sorted(_RESULTS.glob(f"{benchmark}-*.json"))]


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table."""
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def _machine(device: str) -> str:
    if device == "cpu":
        return f"{os.cpu_count()} CPU cores"
    return f"one {torch.cuda.get_device_name().removeprefix('NVIDIA ')}"
