"""Settings of path queries: presets, what they train on, and the rows of tables."""

from __future__ import annotations

import math
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from dcgraph.experiments.tasks.paths.queries import unpacked

from dcgraph.experiments.engine.datasets import DataError
from dcgraph.experiments.engine.tables import jobs
from dcgraph.experiments.tasks import get_table, get_task
from dcgraph.experiments.tasks.paths.data import load
from dcgraph.experiments.tasks.paths.settings import (
    FB15K_237,
    PAPER,
    PAPER_FB13,
    PAPER_FB15K_237,
    PRESETS,
    compressed,
    quick,
)
from dcgraph.experiments.tasks.paths.task import Paths
from ring_of_paths import ENTITIES, STEPS, settings_for, write_circle
from small_graphs import write_ring


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_circle(tmp_path_factory.mktemp("ring"))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"length": 0}, "at least 1"),
        ({"triples": 0}, "at least 1"),
        ({"dim": 0}, "at least 1"),
        ({"beam": 0}, "at least 1"),
        ({"object_dropout": 1.0}, r"\[0, 1\)"),
        ({"l2_entities": -1.0}, "at least 0"),
        ({"init": 0.0}, "stay there"),
        ({"monitor": "MRR"}, "not measured by protocol 'range'"),
        ({"model": "coke", "dim": 3}, "heads"),
        ({"beta_share": -1.0}, "share of tau"),
    ],
)
def test_settings_without_sense_are_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        replace(PAPER, **changes)


def test_presets_have_the_papers_settings_but_for_what_trains_better() -> None:
    assert (PAPER.epochs, PAPER.batch, PAPER.lr, PAPER.tau, PAPER.dim) == (200, 512, 1e-3, 4, 256)
    dropouts = [
        (s.subject_dropout, s.object_dropout, s.relation_dropout) for s in (PAPER, PAPER_FB13)
    ]
    assert dropouts == [(0.7, 0.1, 0.5), (0.1, 0.6, 0.2)]
    assert FB15K_237.backwards == "paths" and FB15K_237.monitor == "MRR"
    papers = {"best": PAPER, "fb13": PAPER_FB13, "fb15k-237": PAPER_FB15K_237}
    for name, paper in papers.items():
        ours = PRESETS[name]
        same = compressed(paper, ours.epochs)
        differ = {f.name for f in fields(same) if getattr(same, f.name) != getattr(ours, f.name)}
        less_dropout = {"object_dropout", "relation_dropout"}
        own = {
            "best": {"triples"},
            "fb13": less_dropout | {"triples"},
            "fb15k-237": less_dropout,
        }[name]
        assert differ == own | {
            *("init", "lr", "decay", "precision", "tau", "beta_share", "estimator")
        }
        entities = {"wn11": 38_696, "fb13": 75_043, "fb15k-237": 14_541}[ours.graph]
        assert ours.beta_share * math.log(entities) == pytest.approx(1, rel=1e-3)
    for whole, compact in ((PAPER, compressed(PAPER, 50)), (FB15K_237, compressed(FB15K_237, 10))):
        last = [
            (s.epochs * s.moves * s.gamma, s.epochs * s.moves * s.alpha_step)
            for s in (whole, compact)
        ]
        assert last[0] == pytest.approx(last[1], rel=1e-3)


def test_a_recipe_for_another_graph_asks_for_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="set beta_share"):
        quick(replace(PAPER, graph="wn18rr"), 10)


def test_beta_by_the_number_of_entities_is_a_dial_of_each_replica() -> None:
    """The largest of n Gumbel values is about beta ln n: a share of 1 / ln n keeps it at tau."""
    one, two = PAPER, replace(PAPER, beta_share=1 / math.log(38_696))
    assert one.structure() == two.structure()
    at_end = []
    for settings in (one, two):
        dials = settings.dials()
        dials.load_state_dict({"calls": 10**6, "every": 1})
        at_end.append(dials.values()["beta"])
    assert at_end == pytest.approx([4.0, 4.0 / math.log(38_696)])
    assert one.structure() != replace(PAPER, noise="reversed").structure()


def test_training_tables_end_at_the_length_and_choosing_follows(ring: Path) -> None:
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
    with pytest.raises(DataError, match="--choose-on all"):
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
        DataError, match=r"triples=2, but no training path .+ has one relation alone"
    ):
        Paths().data(settings_for(tmp_path, triples=2))


def test_backwards_are_further_examples(ring: Path) -> None:
    task = Paths()
    data = task.data(settings_for(ring))
    single, double = data.tables("train")[:2]

    def asked(table: dict[str, torch.Tensor], way: str) -> dict[str, torch.Tensor]:
        rows = {name: tensor[:4] for name, tensor in table.items()}
        settings = settings_for(ring, backwards=way)
        return task.inputs(settings, data.shared, rows, training=True)

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


def test_queries_without_competitors_are_an_error(tmp_path: Path) -> None:
    """Who knows whom: what everybody knows has no negatives in its range, and others have."""
    (tmp_path / "paths").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("x\tknows\ty\nz\tknows\ty\n")
        (tmp_path / "paths" / f"{split}.txt").write_text("x\tknows\ty\n")
    settings = settings_for(tmp_path, length=1)
    with pytest.raises(DataError, match="no query of validation has negatives; use --protocol"):
        Paths().data(replace(settings, protocol="range", monitor="MQ"))
    assert Paths().data(settings).size("test") == 2


def test_held_out_queries_are_not_trained_on_backwards(tmp_path: Path) -> None:
    """Files may have a training path whose reverse is a query."""
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
        .data(replace(base, backwards=way, protocol=protocol, monitor="H@10"))
        .size("train")
        for way in ("triples", "paths")
        for protocol in ("range", "all")
    }
    assert trained == {
        ("triples", "range"): 3, ("triples", "all"): 2, ("paths", "range"): 2, ("paths", "all"): 2
    }  # fmt: skip
    other = shutil.copytree(tmp_path, tmp_path / "other")
    (other / "paths" / "train.txt").write_text("e1\tnext\te2\ne1\tnext,next\te3\n")
    left = Paths().data(replace(base, graph=str(other), backwards="paths"))
    assert left.sizes("train") == [1], "no empty table"


def test_rows_of_the_tables_can_be_trained_and_named(tmp_path: Path) -> None:
    """Long names are cut, and folders of different settings still differ."""
    task = get_task("paths")
    for name in ("paths", "paths-extrapolation", "paths-noise", "paths-small", "paths-search"):
        for row, wanted in jobs(get_table(name), tmp_path).items():
            assert all(len(job.record.parent.name) <= 217 for job in wanted), row
            assert all(isinstance(job.settings, task.settings) for job in wanted)
    folders = [
        job.record.parent
        for row in jobs(get_table("paths-small"), tmp_path).values()
        for job in row
    ]
    assert len(set(folders)) == 8
    shared = [
        {job.record for row in jobs(get_table(name), tmp_path).values() for job in row}
        for name in ("paths", "paths-extrapolation")
    ]
    assert len(shared[0] & shared[1]) == 12  # on all paths: three seeds of ours, in three ways
