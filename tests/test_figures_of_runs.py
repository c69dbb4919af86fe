"""The figures that are drawn from records: the same numbers as in the table, and all seeds."""

from __future__ import annotations

import copy
import json
import statistics
import struct
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dcgraph.experiments import cli, figures
from dcgraph.experiments.engine.records import RecordError, write_record
from dcgraph.experiments.engine.tables import Table, as_json, jobs
from dcgraph.experiments.figures import annealing, category, gradients, lengths
from dcgraph.experiments.figures.runs import records_of
from dcgraph.experiments.tasks.addition.tables import ANNEALING, annealing_row
from dcgraph.experiments.tasks.listops.tables import ABLATION
from dcgraph.experiments.tasks.paths.tables import (
    FB15K_237,
    FB15K_237_BY_BEAM,
    SMALL,
    SMALL_BY_BEAM,
)

RESULTS = Path(__file__).parents[1] / "results"
NAMES = [name for name, recipe in figures.FIGURES.items() if recipe.from_records]


@pytest.fixture(scope="module")
def curves() -> dict[str, Any]:
    return annealing.compute(RESULTS)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return category.compute(RESULTS)


@pytest.mark.parametrize("name", NAMES)
def test_made_from_records_and_drawn_from_the_json_alone(name: str, tmp_path: Path) -> None:
    picture, data = figures.make(name, tmp_path, results=RESULTS)
    first = picture.read_bytes()
    width, height = struct.unpack(">II", first[16:24])
    assert width == 1440 and 700 < height < 1400
    figures.FIGURES[name].draw(json.loads(data.read_text()), picture)
    assert picture.read_bytes() == first


def test_no_run_is_dropped_and_the_shares_are_those_of_the_table(curves: dict[str, Any]) -> None:
    cells = {(c["row"], c["column"]): c["mean"] for c in as_json(ANNEALING, RESULTS)}
    assert len(curves["groups"]) == len(ANNEALING.rows) == 12
    for group in curves["groups"]:
        row = annealing_row(group["summands"], group["dropres"], group["scheme"]).name
        assert [run["seed"] for run in group["runs"]] == list(range(9))
        for k, level in enumerate(curves["levels"]):
            arrived = [run for run in group["runs"] if run["reached"][k] is not None]
            assert cells[row, f"reached {level:g} (%)"] == pytest.approx(
                100 * len(arrived) / 9, abs=0.01
            )
            for run in arrived:
                first = next(e for e, a in zip(run["epochs"], run["accuracy"], strict=True)
                             if a >= level)  # fmt: skip
                assert run["reached"][k] == pytest.approx(first, abs=1e-3)


def test_the_latest_runs_are_the_latest(curves: dict[str, Any]) -> None:
    runs = annealing._schemes(curves, 2, False)["TauAnn"]
    one, two = annealing._latest(runs)
    others = [run["reached"][0] for run in runs if run not in (one, two)]
    assert one["reached"][0] >= two["reached"][0] >= max(others)
    assert annealing._latest(annealing._schemes(curves, 3, False)["base"]) == []


@pytest.mark.parametrize(
    ("name", "table"),
    [("annealing", "annealing"), ("gradients", "listops-ablation"), ("lengths", "paths-small")],
)
def test_a_missing_record_is_named_with_its_remedy(
    name: str, table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = ["figure", name, "--results", str(tmp_path), "--out", str(tmp_path / "out")]
    assert cli.main(wanted) == 1
    assert f"dcgraph reproduce {table}" in capsys.readouterr().err


def test_gradients_of_all_rounds_come_from_the_probe(tmp_path: Path) -> None:
    """With records that say where each number comes from: row, seed, look and place."""
    for row, wanted in enumerate(jobs(ABLATION, tmp_path).values()):
        for job in wanted:
            curve = [
                {"step": look * 100, "probe": _readings(row, job.settings.seed, look)}
                for look in (1, 2)
            ]
            settings = asdict(job.settings)
            write_record(job.record, {"steps": 200, "settings": settings, "curve": curve})
    picture, data = figures.make("gradients", tmp_path / "out", results=tmp_path)
    numbers = json.loads(data.read_text())
    assert picture.stat().st_size > 10_000
    assert numbers["closed"] == 50  # epochs of ten moves of 0.002
    assert [group["name"] for group in numbers["groups"]] == list(gradients._ROWS)
    for row, group in enumerate(numbers["groups"]):
        for seed, run in enumerate(group["runs"]):
            assert (run["seed"], run["epochs"]) == (seed, [50.0, 100.0])
            places = [[f"{row + 1}{seed}{look}{k}" for k in range(5)] for look in (1, 2)]
            assert [[f"{v:.0f}" for v in look] for look in run["gradients"]] == places


def test_the_gradients_are_as_the_picture_is_explained() -> None:
    """The gradient at the embedding as a share of that after round 4, at first and at last."""
    shares = {
        group["name"]: [
            [run["gradients"][when][0] / run["gradients"][when][-1] for run in group["runs"]]
            for when in (0, -1)
        ]
        for group in gradients.compute(RESULTS)["groups"]
    }
    first, last = shares["without both"]
    assert max(first) < 0.03 and statistics.median(first) < 0.015 and max(last) < 0.15
    for name in ("with both", "without TempMatch"):
        assert min(shares[name][0]) > 3
    first, last = shares["without DropRes"]
    assert min(first) > 0.7 and max(first) < 1.6
    behind = {k for k, share in enumerate(last) if share < 0.5}
    edges = [record["readout"]["test edge/sample"] for record in
                records_of(ABLATION, "without DropRes (alpha = 1)", RESULTS)]  # fmt: skip
    assert behind == {k for k, edge in enumerate(edges) if edge < 0.25} == {0, 3, 7}


@pytest.mark.parametrize(
    ("graph", "tables"),
    [("UMLS", (SMALL, SMALL_BY_BEAM)), ("FB15k-237", (FB15K_237, FB15K_237_BY_BEAM))],
)
def test_lengths_are_those_of_the_tables(graph: str, tables: tuple[Table, Table]) -> None:
    by_argmax, by_beam = (
        {(cell["row"], cell["column"]): cell["mean"] for cell in as_json(table, RESULTS)}
        for table in tables
    )
    rows = {  # by the name in the picture
        "ours, by a beam": ("Ours", by_beam),
        "ours": ("Ours", by_argmax),
        "without both methods": ("without both", by_argmax),
        "ComplEx-C, by a beam": ("ComplEx-C", by_beam),
        "ComplEx-C": ("ComplEx-C", by_argmax),
        "ComplEx, triples alone": ("ComplEx, triples alone", by_argmax),
    }
    if graph == "FB15k-237":
        del rows["without both methods"]
    groups = lengths.compute(RESULTS)["graphs"][graph]
    assert [group["name"] for group in groups] == list(rows)
    for group in groups:
        row, cells = rows[group["name"]]
        means = [100 * statistics.fmean(values) for values in zip(*group["runs"], strict=True)]
        assert means == pytest.approx([cells[row, f"{k}"] for k in range(1, 11)], abs=0.01)


def test_longer_paths_in_training_help_with_long_ones() -> None:
    groups = lengths.compute(RESULTS)["graphs"]["WN11"]
    runs = [(group["trained"], len(group["runs"])) for group in groups]
    assert runs == [(5, 3), (5, 3), (5, 3), (3, 1), (2, 1), (1, 1)]  # two by beams
    means = [
        [statistics.fmean(values) for values in zip(*group["runs"], strict=True)]
        for group in groups
    ]
    for by_training in list(zip(*means[1:], strict=True))[2:]:  # but for the one that looks back
        assert list(by_training) == sorted(by_training, reverse=True)


def test_lengths_of_the_graphs_that_have_records(tmp_path: Path) -> None:
    """Runs on a CPU are enough for a picture; what lacks a number is an error."""
    for row in jobs(SMALL, RESULTS).values():
        for job in row:
            copied = tmp_path / job.record.relative_to(RESULTS)
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(job.record.read_bytes())
    picture, data = figures.make("lengths", tmp_path / "out", results=tmp_path)
    assert list(json.loads(data.read_text())["graphs"]) == ["UMLS"]
    assert picture.stat().st_size > 10_000
    first = jobs(SMALL, tmp_path)["Ours"][0].record
    record = json.loads(first.read_text())
    record["readout"] = {k: v for k, v in record["readout"].items() if "beam" not in k}
    write_record(first, record)
    with pytest.raises(RecordError, match="'MRR, beam' by length"):
        lengths.compute(tmp_path)


def _readings(row: int, seed: int, look: int) -> list[dict[str, Any]]:
    """Of all places and of a node, which is not drawn."""
    names = ("round 4", "embedding", "round 1", "value", "round 2", "round 3")
    places = {"embedding": 0, **{f"round {k}": k for k in range(1, 5)}, "value": 9}
    return [
        {"name": name, "gradient": float(f"{row + 1}{seed}{look}{places[name]}")} for name in names
    ]


def test_a_run_that_stopped_is_drawn_too(curves: dict[str, Any], tmp_path: Path) -> None:
    broken = copy.deepcopy(curves)
    run = broken["groups"][0]["runs"][0]
    run["accuracy"][30:] = [None] * len(run["accuracy"][30:])
    for draw in (annealing.draw, annealing.draw_runs):
        draw(broken, tmp_path / "picture")


def test_the_late_category_is_chosen_as_the_text_says(found: dict[str, Any]) -> None:
    matched, base = found["runs"]
    table = jobs(ANNEALING, RESULTS)[annealing_row(2, False, "TempMatch").name]
    epochs = {
        job.settings.seed: next(
            look["step"]
            for look in json.loads(job.record.read_text())["curve"]
            if look["accuracy/argmax"] >= 0.9
        )
        for job in table
    }
    assert epochs[matched["seed"]] == max(epochs.values())
    assert matched["category"] in matched["in_use"]
    weights = matched["weight"]
    half = {
        j: next(k for k, row in enumerate(weights) if row[j] >= weights[-1][j] / 2)
        for j in matched["in_use"]
    }
    assert half[matched["category"]] == max(half.values())
    assert min(base["weight"][-1]) == base["weight"][-1][base["category"]]


def test_the_picture_shows_the_point_of_the_paper(
    curves: dict[str, Any], found: dict[str, Any]
) -> None:
    """On two summands base mostly stays behind; TempMatch arrives always, and before TauAnn."""
    arrived: dict[str, list[float]] = {
        scheme: [run["reached"][0] for run in runs if run["reached"][0] is not None]
        for scheme, runs in annealing._schemes(curves, 2, dropres=False).items()
    }
    assert len(arrived["base"]) < 6 and len(arrived["TempMatch"]) == 9
    assert max(arrived["TempMatch"]) < max(arrived["TauAnn"])
    matched = found["runs"][0]
    shares = [row[matched["category"]] for row in matched["weight"]]
    jump = next(k for k, share in enumerate(shares) if share >= shares[-1] / 2)
    assert max(shares[: jump - 1]) < shares[-1] / 4, "next to nothing until then"
    when = matched["probed"][jump]
    accuracy = dict(zip(matched["epochs"], matched["accuracy"], strict=True))
    assert accuracy[when - 2] < 0.9 < accuracy[when + 1], "and the accuracy jumps with it"
