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


def _gains(name: str, task: str) -> dict[tuple[int, int, str], tuple[float, float]]:
    """By width, categories and precision: times as fast as whole matrices, and share of memory."""
    rows = [row for row in record(name)["rows"] if row["task"] == task and "total" in row]
    whole = {(_size(row), row["precision"]): row for row in rows if row["way"] == "whole matrices"}
    found = {}
    for row in rows:
        other = whole.get((_size(row), row["precision"]))
        forced = name == "mix-cuda" and row["dim"] == 64 and row["way"] == "blockwise"
        if other and row["way"] != "whole matrices" and not forced:
            gain = other["total"] / row["total"], row["bytes"] / max(1, other["bytes"])
            found[row["dim"], row["n"], row["precision"]] = gain
    return found


@pytest.mark.parametrize(
    ("task", "width", "expected"),
    [
        ("mix, hard", 512, (2.6, 6.3)),
        ("choose", 512, (2.6, 4.5)),
        ("cross_entropy", 512, (1.5, 4.1)),
        ("choose", 64, (2.3, 6.2)),
        ("cross_entropy", 64, (1.3, 4.6)),
    ],
)
def test_what_the_other_functions_gain_on_a_gpu(
    task: str, width: int, expected: tuple[float, float]
) -> None:
    found = [
        gain
        for (dim, n, precision), (gain, _) in _gains("mix-cuda", task).items()
        if (dim, precision) == (width, "bf16") and n > 9999
    ]
    assert len(found) == 4
    assert (min(found), max(found)) == pytest.approx(expected, abs=0.06)


def test_a_thousand_categories_are_slower_than_whole_matrices() -> None:
    for name in ("mix-cuda", "mix-cpu"):
        for task in ("mix", "mix, hard", "choose", "cross_entropy"):
            few = [gain for (_, n, _), (gain, _) in _gains(name, task).items() if n == 1000]
            assert few and max(few) < 1


def test_what_the_functions_gain_on_a_cpu() -> None:
    noisy = {
        (task, n): gain
        for task in ("mix", "mix, hard", "choose")
        for (_, n, _), (gain, _) in _gains("mix-cpu", task).items()
        if n > 9999
    }
    assert [min(noisy.values()), max(noisy.values())] == pytest.approx([1.5, 3.3], abs=0.06)
    loss = {n: gain for (_, n, _), (gain, _) in _gains("mix-cpu", "cross_entropy").items()}
    assert [loss[1000], loss[10_000]] == pytest.approx([0.5, 0.5], abs=0.06)
    assert loss[100_000] < 1 < loss[1_000_000]
    for task in ("mix", "mix, hard", "choose", "cross_entropy"):
        shares = {n: share for (_, n, _), (_, share) in _gains("mix-cpu", task).items()}
        assert shares[100_000] < 0.5 and shares[1_000_000] < 0.055


def test_how_near_mix_is_to_its_floor() -> None:
    rows = [r for r in record("mix-cuda")["rows"] if r["task"] == "mix" and r["n"] > 9999]
    for way, dim, precision, expected in (
        ("blockwise", 512, "float32", [0.64, 0.82]),
        ("blockwise", 512, "bf16", [0.32, 0.49]),
        ("whole matrices", 512, "float32", [0.69, 0.79]),
        ("whole matrices", 512, "bf16", [0.08, 0.19]),
        ("streaming", 64, "float32", [0.20, 0.49]),
        ("streaming", 64, "bf16", [0.04, 0.13]),
    ):
        shares = [
            row["of_floor"]
            for row in rows
            if (row["way"], row["dim"], row["rows"]) == (way, dim, 512)
            and row["precision"] == precision
        ]
        assert [min(shares), max(shares)] == pytest.approx(expected, abs=0.006)


def test_streaming_is_faster_than_blocks_on_short_vectors() -> None:
    totals = {
        (row["way"], row["precision"]): row["total"]
        for row in record("mix-cuda")["rows"]
        if (row["task"], *_size(row)) == ("mix", 512, 64, 1_000_000)
    }
    for precision, expected in (("float32", 1.7), ("bf16", 1.7), ("TF32", 2.5)):
        gain = totals["blockwise", precision] / totals["streaming", precision]
        assert gain == pytest.approx(expected, abs=0.05)


def test_what_exact_logits_bring_and_cost() -> None:
    """In half precision, in the rows that the page shows."""
    rows = [
        row
        for row in record("accuracy-cpu")["rows"]
        if row["categories"] > 999 and row["precision"] != "float32"
    ]
    own = {(row["way"], row["categories"], row["precision"]): row for row in rows}
    errors, times, codebook = [], [], []
    for way, n, precision in own:
        if way in ("dense", "blockwise"):
            row, by_hand = (own[w, n, precision] for w in (way, "by hand, logits rounded"))
            errors += [a / b for a, b in zip(by_hand["errors"], row["errors"], strict=True)]
            times.append(row["time"])
            blockwise = own["blockwise", n, precision]["errors"][2]
            codebook.append(row["errors"][2] / blockwise)
    assert [round(min(errors)), round(max(errors))] == [3, 17]
    assert [round(min(times)), round(max(times))] == [2, 4]
    assert max(codebook) == pytest.approx(3, abs=0.15)


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


def test_gains_on_a_cpu_are_smaller() -> None:
    addition = {row["replicas"]: row["speedup"] for row in record("population-cpu")["population"]}
    assert round(addition[1], 2) == 0.76
    assert [round(addition[n], 1) for n in (8, 32)] == [2.1, 2.2]
    listops = [row["speedup"] for row in record("listops-cpu")["rows"] if row["way"] != "plain"]
    assert [round(gain) for gain in listops] == [6, 7]
    (paths,) = (row for row in record("paths-cpu")["rows"] if row["way"] == "dcgraph")
    assert max(paths["speedups"]) < 1.01


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


def test_small_models_do_not_fill_many_gpus() -> None:
    """What the page says of 64 replicas on 64 GPUs."""
    rows = [row for row in record("population-cuda")["population"] if row["way"] == "captured"]
    times = {row["replicas"]: row["ms_per_step"] for row in rows}
    assert 1 / 3 < times[1] / times[64] < 0.4
