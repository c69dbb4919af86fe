"""Tables of benchmarks: how a gain is split into factors, and what was not measured."""

from __future__ import annotations

import csv
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from small_graphs import graph_of

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


def cells(table: str) -> list[list[str]]:
    """The rows of a table in Markdown, without its head."""
    rows = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in rows[2:]]


def csv_lines(text: str) -> list[list[str]]:
    """The same of a table for a file."""
    return list(csv.reader(text.splitlines()))[1:]


def test_a_path_step_is_compared_with_the_faster_plain_way_at_its_precision(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = script("paths")
    rows = [row(paths.USUAL, "float32", 9.0), row(paths.LEAN, "float32", 8.0)]
    rows += [row(paths.LEAN, "tf32", 3.0), row(paths.DCGRAPH, "float32", 4.0)]
    rows += [row(paths.DCGRAPH, "tf32", 2.0), row(paths.DCGRAPH, "bf16", 1.0)]
    size = {"entities": 10, "dim": 4, "batch": 8}
    record = {"device": "a device", "size": size, "rows": rows}
    monkeypatch.setattr(paths, "records", lambda name: [record])
    assert [line[-1] for line in csv_lines(paths.whole())] == [
        *("0.89", "1.0", "1.0", "2.0", "1.5", "")
    ]
    assert cells(paths.table()) == [
        ["3", "float32", "9.00", "8.00", "4.00", "2.00x", "1.00x"],
        ["3", "tf32", "-", "3.00", "2.00", "1.50x", "1.00x"],
        ["3", "bf16", "-", "-", "1.00", "-", "1.00x"],
    ]


def test_mix_is_compared_with_whole_matrices_at_its_precision(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    mix = script("mix")

    def measured(way: str, precision: str, total: float, **more: Any) -> dict[str, Any]:
        size = {"task": "mix", "rows": 512, "dim": 512, "n": 1000, "bytes": 10**6}
        times = {"forward": total / 2, "backward": total / 2, "total": total, "of_floor": 0.5}
        return {**size, **times, "precision": precision, "way": way, **more}

    rows = [measured(mix.WHOLE, "float32", 8.0), measured(mix.WHOLE, "TF32", 3.0, speedup=8 / 3)]
    rows += [measured("dense", "float32", 4.0, speedup=2.0)]
    rows += [measured("blockwise", "TF32", 2.0, speedup=4.0)]
    rows += [measured("blockwise", "bf16", 1.0, speedup=8.0, bytes=None)]
    rows += [{"task": "mix", "rows": 2048, "dim": 64, "n": 1000, "precision": "bf16",
              "way": mix.WHOLE}]  # fmt: skip
    rows += [measured("streaming", "bf16", 1.0, rows=2048, dim=64)]
    rows += [measured("blockwise", "bf16", 2.0, rows=512, dim=64)]  # is not what is taken
    rows += [measured("blockwise", "bf16", 2.0, task="choose")]
    monkeypatch.setattr(mix, "records", lambda name: [{"device": "one GPU", "rows": rows}])
    assert cells(mix.table("wide")) == [
        ["1,000", "float32", "8,000.0", "4,000.0", "2.0x", "1", "1"],
        ["1,000", "TF32", "3,000.0", "2,000.0", "1.5x", "1", "1"],
        ["1,000", "bf16", "-", "1,000.0", "-", "-", "-"],
    ]
    assert cells(mix.table("narrow")) == [
        ["1,000, 2,048 queries", "bf16", "out of memory", "1,000.0", "-", "-", "1"]
    ]
    (other,) = cells(mix.table("others"))
    assert other[:4] == ["choose", "1,000", "-", "2,000.0"]
    ratios = [(line[6], *line[9:11]) for line in csv_lines(mix.whole())]
    assert ratios[:5] == [
        (mix.WHOLE, "", ""),
        (mix.WHOLE, "2.667", ""),
        ("dense", "2.0", "2.0"),
        ("blockwise", "4.0", "1.5"),
        ("blockwise", "8.0", ""),
    ]
    assert len(ratios) == len(rows)


def test_whole_matrices_are_measured_at_every_precision(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    mix = script("mix")
    speed = dict.fromkeys(("float32", "TF32", "bf16", "copy"), 1e9)
    wanted = [(name, None) for name in mix.PRECISIONS]
    monkeypatch.setattr(mix, "SECONDS", 0.0)
    monkeypatch.setattr(mix, "rates", lambda device: speed)
    monkeypatch.setattr(
        mix, "plans", lambda device: [(task, mix.Size(4, 8, 10), wanted) for task in mix.UNITS]
    )
    rows = mix.measure("cpu")["rows"]
    for task in mix.UNITS:
        found = [(row["way"], row["precision"]) for row in rows if row["task"] == task]
        assert found == [(way, name) for way in (mix.WHOLE, "dense") for name in mix.PRECISIONS]
    assert all(row["total"] > 0 for row in rows)


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


def test_a_cut_of_a_graph_has_the_triples_among_the_entities_met_first(
    script: Callable[[str], ModuleType],
) -> None:
    """From the hub 3, breadth first: 3, then its neighbours; every triple is in one split."""
    ring = [(k, 0, (k + 1) % 40) for k in range(40)]
    spokes = [(3, 1, k) for k in range(10, 30)]
    graph = graph_of({"train": ring + spokes, "test": [(0, 1, 1)]})
    found = script("asking").cut(graph, 20)
    assert len(found.entities) == 20 and "e3" in found.entities and "e4" in found.entities
    inside = {graph.entities.index(name) for name in found.entities}
    rows = [row for triples in found.triples.values() for row in triples.tolist()]
    named = sorted((found.entities[h], r, found.entities[t]) for h, r, t in rows)
    assert named == sorted(
        (f"e{h}", r, f"e{t}")
        for h, r, t in [*ring, *spokes, (0, 1, 1)]
        if h in inside and t in inside
    )
    assert len(found.triples["train"]) > 6 * len(found.triples["test"]) > 0


def test_parts_of_the_record_of_answers_are_tables(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = script("asking")
    errors = {
        "error of shares": 0.0611,
        "error, one fit": 0.02,
        "error, a fit for each length": 0.01,
    }
    rule = {"left": 0.304, "lost": 0.0125}
    record = {
        "device": "a device",
        "calibration": [{"graph": "g", "lengths": "1", "answers": 1234, "right": 0.05, **errors}],
        "candidates": [{"graph": "g", "entities": 1000, "range": rule, "kind": rule, "auto": rule}],
        "ranks": [{"graph": "g", "all": 0.5, "auto": 0.625}],
        "speed": [{"length": 3, "queries": 1000, "seconds": 0.5}],
    }
    monkeypatch.setattr(asking, "records", lambda name: [record, {"device": "one without"}])

    def cells(part: str) -> list[str]:
        (last,) = asking.table(part).splitlines()[2:]
        return [cell.strip() for cell in last.strip("|").split("|")]

    assert cells("calibration") == ["g", "1", "1,234", "5.0%", "6.1", "2.0", "1.0"]
    assert cells("candidates") == ["g", *("30", "1.25") * 3]
    assert cells("ranks") == ["g", "50.0", "62.5"]
    assert cells("speed") == ["a device", "3", "2,000"]


def test_several_gpus_are_computed_from_the_record_of_one(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest share of a rank counts, by straight lines between what was measured."""
    population = script("population")
    measured = {1: 1.0, 8: 1.7, 64: 7.3}
    times = [population.ms_per_step(size, measured) for size in (1, 2, 8, 36, 64, 128)]
    assert times == pytest.approx([1.0, 1.1, 1.7, 4.5, 7.3, 13.7])
    rows = [
        {"way": way, "replicas": size, "ms_per_step": factor * ms}
        for way, factor in (("captured", 1), ("compiled, captured", 9))
        for size, ms in measured.items()
    ]
    record = {"device": "a GPU", "population": rows}
    monkeypatch.setattr(population, "records", lambda name: [{"device": "2 CPU cores"}, record])
    monkeypatch.setattr(population, "GPUS", {64: (1, 5, 64), 128: (1,)})
    one, five, most, large = cells(population.table("gpus"))
    assert one[:6] == ["64", "1", "64", "7.30", "1.0x", "0"]
    assert five[:5] == ["64", "5", "13", "2.20", "3.3x"]
    assert most[:5] == ["64", "64", "2", "1.10", "6.6x"], "two are trained, and one is kept"
    assert large[3:5] == ["13.70 (extrapolated)", "1.0x"]
    weights = sum(p.numel() for p in population.Plain().parameters())
    assert most[5] == f"{16 * weights * 63 / 1e6:.0f}"
    assert population.checkpoint_bytes(10, 3, average=True) == 600


def test_every_estimator_is_measured_or_has_a_reason(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    estimators = script("estimators")
    monkeypatch.setattr(importlib.import_module("common"), "_BLOCK", 0.0)
    monkeypatch.setattr(estimators, "SECONDS", 0.0)
    places = estimators.Place(16, 5), estimators.Place(16, 5, 3)
    monkeypatch.setattr(estimators, "PLACES", places)
    record = {"device": "some CPU cores", **estimators.measure("cpu")}
    monkeypatch.setattr(estimators, "records", lambda name: [record])
    loss, logits = estimators.LOSS_ESTIMATORS, estimators.ESTIMATORS
    names = {*logits, *loss, *estimators.CODEBOOK_ESTIMATORS, estimators.ONLY_LOSS}
    found = {(row["estimator"], row["dim"]): row for row in record["rows"]}
    assert found.keys() == {(name, dim) for name in names for dim in (None, 3)}
    for (name, dim), row in found.items():
        for_codebooks = dim is None and name not in {*logits, *loss, estimators.ONLY_LOSS}
        if name in estimators.LEFT_OUT or for_codebooks:
            assert "left_out" in row and "seconds" not in row
        else:
            assert row["times"] > 0 and row["seconds"] > 0 and row["calls"] > 0
            assert (row["calls"] > 1) == (name in loss)
    assert found["gumbel_softmax", 3]["times"] == 1
    lines = {cells[0].strip("`"): cells for cells in cells(estimators.table("cpu"))}
    assert lines.keys() == names - estimators.LEFT_OUT.keys()
    assert lines["rebar"][1] == "3" and lines["gumbel_softmax"][1:4] == ["1", "1.00x", "1.00x"]
    assert "`enumeration`: it calls the loss" in estimators.table("cpu")
    assert "no record yet" in estimators.table("cuda")


def test_an_estimator_that_would_need_too_much_memory_is_not_run(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What 512 rows need is foreseen from 32 and 64 of them."""
    estimators = script("estimators")
    place = estimators.Place(512, 4)
    seen: list[int] = []

    def needed(step: Any) -> float:
        seen.append(len(step.input))
        return 3e9 + 1e9 * len(step.input)

    monkeypatch.setattr(estimators.Step, "bytes", needed)
    data = estimators.data_of(place, "cpu")
    for limit, expected in ((514e9, "it needs about 515 GB"), (516e9, None)):
        monkeypatch.setattr(estimators, "LIMIT", limit)
        assert estimators.reason("gumbel_softmax", place, data) == expected
    assert seen == [32, 64] * 2
    row = {"estimator": "gumbel_rao", "left_out": "it needs about 515 GB", **vars(place)}
    other = {"estimator": "gumbel_softmax", "seconds": 0.002, "times": 1.0, "calls": 1}
    other |= {"bytes": 2e6, "makes_logits": False}
    rows = [{**other, **vars(place)}, row, {**other, **vars(place), "vectors": 8}]
    rows += [{**other, "estimator": "gumbel_rao", "times": 2.5, **vars(place), "vectors": 8}]
    monkeypatch.setattr(estimators, "records", lambda name: [{"device": "one GPU", "rows": rows}])
    text = estimators.table("cuda")
    assert cells(text) == [
        ["`gumbel_softmax`", "1", "1.00x", "1.00x", "2", "no"],
        ["`gumbel_rao`", "1", "-", "2.50x", "2", "no"],
    ]
    assert "(2.0 ms, 2.0 ms)" in text
    assert text.endswith("Not run: `gumbel_rao` (512 x 4): it needs about 515 GB.")
