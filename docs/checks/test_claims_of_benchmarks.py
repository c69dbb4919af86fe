"""What the docs say of speed, by the records of the benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def record(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def test_what_mix_gains_on_a_gpu() -> None:
    """From ten thousand categories on, the implementation that is taken by itself."""
    rows = [row for row in record("mix-cuda")["rows"] if row["task"] == "mix" and row["n"] > 9999]
    taken = {
        precision: [
            row
            for row in rows
            if row["precision"] == precision
            and row["way"] == ("streaming" if row["dim"] == 64 else "blockwise")
            and "speedup" in row
        ]
        for precision in ("float32", "TF32", "bf16")
    }
    for precision, least, most in (("float32", 0.8, 1.5), ("TF32", 1.7, 5.8), ("bf16", 2.5, 10.0)):
        gains = [row["speedup"] for row in taken[precision]]
        assert len(gains) == 8
        assert [min(gains), max(gains)] == pytest.approx([least, most], abs=0.05)
    wide = {row["n"]: row["speedup"] for row in taken["float32"] if row["dim"] == 512}
    assert wide[1_000_000] == pytest.approx(0.8, abs=0.05)
    for row in taken["float32"]:
        whole = next(w for w in rows if w["way"] == "whole matrices" and _size(w) == _size(row))
        assert row["bytes"] < 0.6 * whole["bytes"]


def _size(row: dict[str, Any]) -> tuple[int, ...]:
    return row["rows"], row["dim"], row["n"]


@pytest.mark.parametrize(
    ("name", "rows", "way", "replicas", "factors"),
    [
        ("population-cuda", "population", "captured", 8, (60, 9.1, 6.6)),
        ("population-cuda", "population", "compiled, captured", 8, (93, 12.7, 7.3)),
        ("listops-cuda", "rows", "captured", 16, (74, 14.5, 5.1)),
        ("listops-cuda", "rows", "captured", 40, (96, 14.5, 6.7)),
    ],
)
def test_gains_are_products_of_capture_and_replication(
    name: str, rows: str, way: str, replicas: int, factors: tuple[float, ...]
) -> None:
    gains = {row["replicas"]: row["speedup"] for row in record(name)[rows] if row["way"] == way}
    found = gains[replicas], gains[1], gains[replicas] / gains[1]
    assert (round(found[0]), round(found[1], 1), round(found[2], 1)) == factors
