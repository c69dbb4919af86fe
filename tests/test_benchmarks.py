"""Tables of benchmarks: how a gain is split into factors, and what was not measured."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = str(Path(__file__).parents[1] / "benchmarks")


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)  # as for a script: where it imports from
    sys.modules.pop("paths", None)
    import paths

    return paths


def row(way: str, precision: str, ms: float) -> dict[str, Any]:
    return {"hops": 3, "way": way, "precision": precision, "ms_per_step": ms, "speedups": [1, 1]}


def test_a_path_step_is_compared_with_the_faster_plain_way_at_its_precision(
    paths: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row(paths.USUAL, "float32", 9.0), row(paths.LEAN, "float32", 8.0)]
    rows += [row(paths.LEAN, "tf32", 3.0), row(paths.DCGRAPH, "float32", 4.0)]
    rows += [row(paths.DCGRAPH, "tf32", 2.0), row(paths.DCGRAPH, "bf16", 1.0)]
    record = {"device": "a device", "size": {"entities": 10}, "rows": rows}
    monkeypatch.setattr(paths, "records", lambda name: [record])
    lines = paths.table().splitlines()[2:]
    last = [line.split("|")[-2].strip() for line in lines]
    assert last == ["0.89x", "1.00x", "1.00x", "2.00x", "1.50x", "-"]


def test_a_gain_is_the_product_of_one_replica_and_of_replication(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    from common import gains

    one = {"way": "captured", "replicas": 1, "speedup": 9.0}
    many = {"way": "captured", "replicas": 8, "speedup": 60.0}
    other = {"way": "compiled", "replicas": 8, "speedup": 90.0}
    assert gains(many, [one, many, other]) == ["60.00x", "9.00x", "6.67x"]
    assert gains(one, [one, many]) == ["9.00x", "9.00x", "1.00x"]
    assert gains(other, [one, many, other]) == ["90.00x", "-", "-"]
