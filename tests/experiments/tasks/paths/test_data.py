"""Loading graphs with their queries: the disk cache, published files, what is trained on."""

from __future__ import annotations

import io
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dcgraph.experiments.engine.datasets import locate
from dcgraph.experiments.engine.errors import DataError
from dcgraph.experiments.tasks.paths import data as path_data
from dcgraph.experiments.tasks.paths import evaluation
from dcgraph.experiments.tasks.paths.data import GRAPHS, PathData, disk_cached, load
from dcgraph.experiments.tasks.paths.data.graph import KnowledgeGraph, unpacked
from dcgraph.experiments.tasks.paths.data.walks import path_hashes, reachable, sample, walks
from dcgraph.experiments.tasks.paths.evaluation import evaluation_sets
from dcgraph.experiments.tasks.paths.task import Paths
from ring_of_paths import ENTITIES, STEPS, settings_for, write_circle
from small_graphs import random_graph, write_ring


@pytest.fixture
def graph() -> KnowledgeGraph:
    return random_graph(20, 3, 90, seed=0)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_circle(tmp_path_factory.mktemp("ring"))


# Which paths are trained on, and which validate


def test_training_tables_end_at_the_length_and_validation_follows(ring: Path) -> None:
    task = Paths()

    def lengths(split: str, **changes: Any) -> list[int]:
        tables = task.data(settings_for(ring, **changes)).tables(split)
        tables = [unpacked(table) for table in tables] if split == "train" else tables
        return [table["path"].shape[1] for table in tables]

    assert lengths("train") == [1, 2, 3] and lengths("train", length=1) == [1]
    assert lengths("test") == list(range(1, 11))
    assert lengths("validation", validate_on="all") == [1, 2, 3, 4, 5]
    assert lengths("validation") == [1, 2, 3]
    assert lengths("validation", validate_on="next", length=1) == [2]
    with pytest.raises(DataError, match="--validate-on all"):
        lengths("validation", validate_on="next", length=5)


def test_an_epoch_may_have_triples_several_times(ring: Path) -> None:
    once, thrice = (
        [table["queries"] for table in Paths().data(settings_for(ring, triples=k)).tables("train")]
        for k in (1, 3)
    )
    assert torch.equal(thrice[0].unique(dim=0), once[0].unique(dim=0))
    assert (thrice[0].unique(dim=0, return_counts=True)[1] == 3).all()
    for longer, as_before in zip(thrice[1:], once[1:], strict=True):
        assert torch.equal(longer, as_before)


def test_triples_cannot_be_repeated_where_there_are_none(tmp_path: Path) -> None:
    write_ring(tmp_path, ENTITIES, STEPS)
    (tmp_path / "paths").mkdir()
    for split, source in (("train", "e0"), ("valid", "e1"), ("test", "e2")):
        (tmp_path / "paths" / f"{split}.txt").write_text(f"{source}\tnext,next\te5\n")
    with pytest.raises(
        DataError, match=r"triples=2, but no training path .+ has only one relation"
    ):
        Paths().data(settings_for(tmp_path, triples=2))


def test_inverse_paths_are_further_examples(ring: Path) -> None:
    task = Paths()
    single, double = task.data(settings_for(ring)).tables("train")[:2]

    def asked(table: dict[str, torch.Tensor], way: str) -> dict[str, torch.Tensor]:
        rows = {name: tensor[:4] for name, tensor in table.items()}
        return task.data(settings_for(ring, inverse=way)).batch(rows, training=True)

    assert len(asked(single, "none")["source"]) == len(asked(double, "triples")["source"]) == 4
    first = load(str(ring)).splits["train"][1][:4]
    for name, tensor in asked(double, "none").items():
        assert torch.equal(tensor, first.table()[name].long()), name
    for batch in (asked(single, "triples"), asked(double, "paths")):
        assert len(batch["source"]) == 8
        assert torch.equal(batch["source"][4:], batch["target"][:4])
        assert torch.equal(batch["target"][4:], batch["source"][:4])
        there, back = batch["path"][:4], batch["path"][4:].flip(1)
        assert ((there - back).abs() == len(STEPS)).all()


def test_lengths_that_have_no_training_paths(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_ring(tmp_path, ENTITIES, STEPS)
    (tmp_path / "paths").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / "paths" / f"{split}.txt").write_text("e0\tnext,next\te2\n")
    with pytest.raises(DataError, match=r"no training paths of up to 1 relations .* of 2 to 2"):
        Paths().data(settings_for(tmp_path, length=1))
    with caplog.at_level("INFO"):
        assert Paths().data(settings_for(tmp_path, length=4)).sizes("train") == [1]
    assert "has training paths of up to 2 relations" in caplog.text


def test_queries_without_negatives_are_an_error(tmp_path: Path) -> None:
    """Who knows whom: what everybody knows has no negatives in its range, and others have."""
    (tmp_path / "paths").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("x\tknows\ty\nz\tknows\ty\n")
        (tmp_path / "paths" / f"{split}.txt").write_text("x\tknows\ty\n")
    settings = settings_for(tmp_path, length=1)
    with pytest.raises(DataError, match="no query of validation has negatives; use --protocol"):
        Paths().data(replace(settings, protocol="range", monitor="MQ"))
    assert Paths().data(settings).size("test") == 2


def test_inverses_of_held_out_queries_are_not_trained_on(tmp_path: Path) -> None:
    """Files may have a training path whose inverse is a query."""
    write_ring(tmp_path, ENTITIES, STEPS)
    (tmp_path / "paths").mkdir()
    lines = {
        "train": ["e0\tnext,next\te2", "e1\tnext,next\te3", "e2\tskip,**skip\te2"],
        "valid": ["e3\t**next,**next\te1"],
        "test": ["e4\tskip,skip\te2", "e2\tskip,**skip\te2"],  # the last: in both files
    }
    for split, some in lines.items():
        (tmp_path / "paths" / f"{split}.txt").write_text("\n".join(some) + "\n")
    base = settings_for(tmp_path, length=2, protocol="range", monitor="MQ")
    trained = {
        (way, protocol): Paths()
        .data(replace(base, inverse=way, protocol=protocol, monitor="H@10"))
        .size("train")
        for way in ("triples", "paths")
        for protocol in ("range", "all")
    }
    assert trained == {
        ("triples", "range"): 3, ("triples", "all"): 2, ("paths", "range"): 2, ("paths", "all"): 2
    }  # fmt: skip
    other = shutil.copytree(tmp_path, tmp_path / "other")
    (other / "paths" / "train.txt").write_text("e1\tnext\te2\ne1\tnext,next\te3\n")
    left = Paths().data(replace(base, graph=str(other), inverse="paths"))
    assert left.sizes("train") == [1], "no empty table"


# The disk cache


def test_what_queries_reach_is_found_once(
    tmp_path: Path, graph: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = PathData(graph, sample(graph, 0))
    calls = []

    def counted(*arguments: object) -> object:
        calls.append(arguments)
        return reachable(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(evaluation, "reachable", counted)
    first = evaluation_sets(data, "range", cache=tmp_path)
    again = evaluation_sets(data, "range", cache=tmp_path)
    assert len(calls) == 1 and list(first) == list(again) == ["validation", "test"]
    for split in first:
        for name, tensor in first[split].constants.items():
            assert torch.equal(tensor, again[split].constants[name])
        for ours, theirs in zip(first[split].tables, again[split].tables, strict=True):
            assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    evaluation_sets(data, "all", "test", cache=tmp_path)
    evaluation_sets(PathData(graph, sample(graph, 1)), "range", cache=tmp_path)
    assert len(calls) == 3


def test_large_texts_are_read_once(
    tmp_path: Path, graph: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, cache = tmp_path / "graph", tmp_path / "cache"
    data = PathData(graph, sample(graph, 0))
    path_data.write(folder, data)
    assert load(str(folder), cache=cache).fingerprint == data.fingerprint
    assert not cache.exists(), "these are small"
    monkeypatch.setattr(path_data, "_LARGE", 1)
    for _ in range(2):
        assert load(str(folder), cache=cache).fingerprint == data.fingerprint
        assert len(list(cache.glob("*"))) == 3
    other = PathData(graph, sample(graph, 1))
    path_data.write(folder, other)
    assert load(str(folder), cache=cache).fingerprint == other.fingerprint


def test_what_is_kept_is_made_anew_if_damaged_and_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = []

    def make() -> dict[str, torch.Tensor]:
        made.append(1)
        return {"x": torch.arange(3)}

    assert disk_cached("name", make)["x"].tolist() == [0, 1, 2]
    kept = tmp_path / "dcgraph" / "paths" / "name.pt"
    assert kept.is_file() and disk_cached("name", make) and len(made) == 1
    kept.write_bytes(kept.read_bytes()[:100])
    assert disk_cached("name", make)["x"].tolist() == [0, 1, 2] and len(made) == 2
    code = io.BytesIO()
    torch.save(Path, code)
    kept.write_bytes(code.getvalue())
    assert disk_cached("name", make)["x"].tolist() == [0, 1, 2] and len(made) == 3
    unwritable = tmp_path / "file"
    unwritable.write_text("not a folder")
    assert disk_cached("name", make, unwritable)["x"].tolist() == [0, 1, 2]


# The published files, where they are on this machine; a test does not download


def published(name: str) -> PathData:
    try:
        for file in GRAPHS[name].values():
            locate(replace(file, urls=()))
    except DataError as error:
        pytest.skip(str(error))
    return load(name)


TRIPLES = {
    "wn11": (38_696, 11, 110_361, 2_606, 10_493),
    "fb13": (75_043, 13, 316_232, 5_908, 23_733),
    "fb15k-237": (14_541, 237, 272_115, 17_535, 20_466),
    "wn18rr": (40_943, 11, 86_835, 3_034, 3_134),
    "nations": (14, 55, 1_592, 199, 201),
    "umls": (135, 46, 5_216, 652, 661),
    "kinships": (104, 25, 8_544, 1_068, 1_074),
}
PATHS = {
    "wn11": {
        "train": [110_361, 411_209, 505_297, 545_669, 557_003],
        "validation": [2_606, 1_420, 2_201, 2_487, 2_563],
        "test": [10_462, 6_450, 9_023, 10_223, 10_419],
    },
    "fb13": {
        "train": [316_232, 1_401_305, 1_417_258, 1_565_260, 1_566_003],
        "validation": [5_908, 4_710, 4_882, 5_903, 5_760],
        "test": [23_733, 19_332, 19_593, 23_517, 23_382],
    },
}


@pytest.mark.parametrize("name", list(TRIPLES))
def test_the_published_graphs(name: str) -> None:
    data = published(name)
    graph = data.graph
    sizes = [len(triples) for triples in graph.triples.values()]
    assert (len(graph.entities), len(graph.relations), *sizes) == TRIPLES[name]
    found = {split: [len(group) for group in data.splits[split]] for split in data.splits}
    if name in PATHS:
        assert found == PATHS[name]
        assert [group.hops for group in data.splits["train"]] == [1, 2, 3, 4, 5]
    else:
        lengths = {"train": 5, "validation": 5, "test": 10}
        assert found == {s: [len(graph.triples[s])] * lengths[s] for s in lengths}


def test_guus_queries_end_where_they_lead() -> None:
    """Every target is reached, in the graph in which the walks of its split were made."""
    data = published("wn11")
    for split, graph in (
        ("train", data.graph.adjacency("train")),
        ("validation", data.graph.adjacency("train", "validation")),
        ("test", data.graph.adjacency("train", "test")),
    ):
        some = [group[:2_000] for group in data.splits[split]]
        reached = reachable(graph, some)
        for group, numbers in zip(some, reached.of, strict=True):
            assert bool(reached.sets.contain(numbers, group.target).all())


def test_guus_queries_are_different() -> None:
    data = published("wn11")
    for hops in range(5):
        found = torch.cat([path_hashes(groups[hops]) for groups in data.splits.values()])
        assert len(found.unique()) == len(found)


def test_our_walks_are_like_guus() -> None:
    """For training he took 20 walks for each of 112,581 lines, a quarter of every length."""
    data = published("wn11")
    graph = data.graph.adjacency("train")
    for published_ones in (data.splits["train"][1], data.splits["train"][4]):
        drawn = walks(graph, published_ones.hops, 0, 5 * 112_581, torch.tensor(1))
        ordered, place = path_hashes(drawn).sort()
        ours = drawn[place[torch.cat([torch.tensor([True]), ordered.diff() != 0])]]
        assert len(ours) == pytest.approx(len(published_ones), rel=0.005)
        shares = [
            torch.bincount(some.path[:, -1].long(), minlength=graph.relations) / len(some)
            for some in (ours, published_ones)
        ]
        assert float((shares[0] - shares[1]).abs().max()) < 0.003
