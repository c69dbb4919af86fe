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
    rows = [
        row
        for row in record("mix-cuda")["rows"]
        if row["task"] == "mix" and row["n"] > 9999 and "total" in row
    ]
    whole = {(_size(row), row["precision"]): row for row in rows if row["way"] == "whole matrices"}
    for precision, same, against_float32 in (
        ("float32", [0.8, 1.5], [0.8, 1.5]),
        ("TF32", [1.0, 2.9], [1.6, 5.8]),
        ("bf16", [1.6, 5.5], [2.4, 10.3]),
    ):
        taken = [
            row
            for row in rows
            if row["precision"] == precision
            and row["way"] == ("streaming" if row["dim"] == 64 else "blockwise")
            and (_size(row), precision) in whole
        ]
        assert len(taken) == 8
        gains = [whole[_size(row), precision]["total"] / row["total"] for row in taken]
        assert [min(gains), max(gains)] == pytest.approx(same, abs=0.06)
        gains = [row["speedup"] for row in taken]
        assert [min(gains), max(gains)] == pytest.approx(against_float32, abs=0.06)
        for row in taken:
            assert row["bytes"] < 0.6 * whole[_size(row), precision]["bytes"]


def _size(row: dict[str, Any]) -> tuple[int, ...]:
    return row["rows"], row["dim"], row["n"]


def test_what_a_step_of_path_queries_gains_at_equal_precision() -> None:
    rows = record("paths-cuda")["rows"]
    for precision, expected in (
        ("float32", [1.0, 1.2]), ("tf32", [1.9, 2.1]), ("bf16", [3.1, 3.8]),
    ):  # fmt: skip
        gains = []
        for hops in (1, 3, 5):
            times = {
                row["way"]: row["ms_per_step"]
                for row in rows
                if (row["hops"], row["precision"]) == (hops, precision)
            }
            own = times.pop("dcgraph")
            gains.append(min(times.values()) / own)
        assert [min(gains), max(gains)] == pytest.approx(expected, abs=0.06)


def test_what_a_population_gains_in_a_loop_of_ones_own() -> None:
    for device, way, sizes, loop, by_hand in (
        ("cuda", "dc.Population, captured", (1, 256), (9, 1646), (14.1, 9.3)),
        ("cpu", "dc.Population", (1, 64), (0.7, 8.0), (1.7, 1.2)),
    ):
        rates = {
            (row["way"], row["replicas"]): row["model_steps_per_second"]
            for row in record(f"own_loop-{device}")["rows"]
        }
        for size, against_loop, against_hand in zip(sizes, loop, by_hand, strict=True):
            rate = rates[way, size]
            assert rate / rates["a loop over models", size] == pytest.approx(against_loop, rel=0.03)
            assert rate / rates["torch.func by hand", size] == pytest.approx(against_hand, rel=0.05)


@pytest.mark.parametrize(
    ("name", "rows", "way", "replicas", "factors"),
    [
        ("population-cuda", "population", "captured", 8, (49, 7.4, 6.6)),
        ("population-cuda", "population", "compiled, captured", 8, (65, 8.9, 7.4)),
        ("listops-cuda", "rows", "captured", 16, (82, 16.8, 4.9)),
        ("listops-cuda", "rows", "captured", 40, (105, 16.8, 6.3)),
    ],
)
def test_gains_are_products_of_capture_and_replication(
    name: str, rows: str, way: str, replicas: int, factors: tuple[float, ...]
) -> None:
    gains = {row["replicas"]: row["speedup"] for row in record(name)[rows] if row["way"] == way}
    found = gains[replicas], gains[1], gains[replicas] / gains[1]
    assert (round(found[0]), round(found[1], 1), round(found[2], 1)) == factors


@pytest.mark.parametrize("path", sorted(RESULTS.glob("sharded-*.json")), ids=lambda path: path.stem)
def test_ranks_that_share_a_codebook_find_what_one_process_finds(path: Path) -> None:
    """And they send what the formula of docs/sharded-codebooks.md says."""
    rows = record(path.stem)["rows"]
    assert {row["ranks"] for row in rows} >= {1, 2} and len(rows) >= 8
    for row in rows:
        assert row["bytes"] == row["formula"]
        assert row["error"] < 1e-5
        assert row["values_to_the_bit"] or row["task"] in ("mix", "cross_entropy")
