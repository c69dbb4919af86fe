"""Tables of benchmarks: how a gain is split into factors, and what was not measured."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

FOLDER = str(Path(__file__).parents[2] / "benchmarks")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """A benchmark as a module; the folder is where it imports from, as for a script."""
    monkeypatch.syspath_prepend(FOLDER)
    loaded: list[str] = []

    def load(name: str) -> ModuleType:
        loaded.append(name)
        return importlib.import_module(name)

    yield load
    for name in (*loaded, "common"):
        sys.modules.pop(name, None)


def row(way: str, precision: str, ms: float) -> dict[str, Any]:
    return {"hops": 3, "way": way, "precision": precision, "ms_per_step": ms, "speedups": [1, 1]}


def test_a_path_step_is_compared_with_the_faster_plain_way_at_its_precision(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = script("paths")
    rows = [row(paths.USUAL, "float32", 9.0), row(paths.LEAN, "float32", 8.0)]
    rows += [row(paths.LEAN, "tf32", 3.0), row(paths.DCGRAPH, "float32", 4.0)]
    rows += [row(paths.DCGRAPH, "tf32", 2.0), row(paths.DCGRAPH, "bf16", 1.0)]
    record = {"device": "a device", "size": {"entities": 10}, "rows": rows}
    monkeypatch.setattr(paths, "records", lambda name: [record])
    lines = paths.table().splitlines()[2:]
    last = [line.split("|")[-2].strip() for line in lines]
    assert last == ["0.89x", "1.00x", "1.00x", "2.00x", "1.50x", "-"]


def test_a_gain_is_the_product_of_one_replica_and_of_replication(
    script: Callable[[str], ModuleType],
) -> None:
    gains = script("common").gains
    one = {"way": "captured", "replicas": 1, "speedup": 9.0}
    many = {"way": "captured", "replicas": 8, "speedup": 60.0}
    other = {"way": "compiled", "replicas": 8, "speedup": 90.0}
    assert gains(many, [one, many, other]) == ["60.00x", "9.00x", "6.67x"]
    assert gains(one, [one, many]) == ["9.00x", "9.00x", "1.00x"]
    assert gains(other, [one, many, other]) == ["90.00x", "-", "-"]


def test_every_way_to_train_on_path_queries_takes_steps(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, device = script("paths"), torch.device("cpu")
    monkeypatch.setattr(paths, "STEPS", 2)
    size = paths.Size(64, 4, 8)
    for precision in ("float32", "tf32", "bf16"):
        for way in (paths.USUAL, paths.LEAN):
            contender = paths.plain(way, size, 3, device, precision)
            contender.run(2)
            assert (contender.way, contender.precision) == (way, precision)
    paths.fast(size, 3, device, "float32").run(2)
    assert torch.get_float32_matmul_precision() == "highest"


def test_every_way_to_train_on_sums_takes_steps(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    population, device = script("population"), torch.device("cpu")
    for name, small in (("IMAGES", 64), ("PAIRS", 32), ("STEPS_PER_EPOCH", 2)):
        monkeypatch.setattr(population, name, small)
    data = population.random_data()
    population.plain(data, device, fused=True).run(2)
    population.population(data, device, 2, compiled=False).run(2)
