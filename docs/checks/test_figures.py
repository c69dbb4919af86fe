"""The figures of committed records: drawn, as the tables have it, and as the texts explain them."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from dcgraph.experiments.engine.metrics import Metric
from dcgraph.experiments.engine.tables import Table, as_json
from dcgraph.experiments.figures import FIGURES, annealing, category, gradients, lengths
from dcgraph.experiments.figures.runs import complete_records, run_of
from dcgraph.experiments.tasks.addition.tables import ANNEALING, annealing_row, epoch_of
from dcgraph.experiments.tasks.listops.tables import ABLATION
from dcgraph.experiments.tasks.paths.tables import (
    FB15K_237,
    FB15K_237_BEAM,
    SMALL,
    SMALL_BEAM,
)
from pictures import check_from_records

RESULTS = Path(__file__).parents[2] / "results"
NAMES = [name for name, figure in FIGURES.items() if figure.from_records]


@pytest.fixture(scope="module")
def curves() -> dict[str, Any]:
    return annealing.compute(RESULTS)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return category.compute(RESULTS)


@pytest.mark.parametrize("name", NAMES)
def test_made_from_records_and_drawn_from_the_json_only(name: str, tmp_path: Path) -> None:
    check_from_records(name, RESULTS, tmp_path)


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


def test_no_run_on_the_chain_arrives(curves: dict[str, Any]) -> None:
    assert annealing._latest(annealing._schemes(curves, 3, False)["base"]) == []


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
    run = run_of(ABLATION, gradients.RUNS["without DropRes"])
    precision = Metric("edge precision", decoder="sample")
    edges = [
        record.metrics[precision] or 0.0 for record in complete_records(ABLATION, run, RESULTS)
    ]
    assert behind == {k for k, edge in enumerate(edges) if edge < 0.25} == {0, 3, 7}


@pytest.mark.parametrize(
    ("graph", "tables"),
    [("UMLS", (SMALL, SMALL_BEAM)), ("FB15k-237", (FB15K_237, FB15K_237_BEAM))],
)
def test_lengths_are_those_of_the_tables(graph: str, tables: tuple[Table, Table]) -> None:
    """Every line is the mean of a row of a table, by argmax or by beam search."""
    groups = {group["name"]: group for group in lengths.compute(RESULTS)["graphs"][graph]}
    _, lines = lengths.GRAPHS[graph]
    assert list(groups) == list(lines)
    for name, (run, metric) in lines.items():
        table = tables[metric.decoder == "beam"]
        row = next(row.name for row in table.rows if run in (one.name for one in row.runs))
        cells = [cell for cell in as_json(table, RESULTS) if cell["row"] == row]
        means = [
            100 * statistics.fmean(values) for values in zip(*groups[name]["runs"], strict=True)
        ]
        assert means == pytest.approx([cell["mean"] for cell in cells[:10]], abs=0.01)


def test_longer_paths_in_training_help_with_long_ones() -> None:
    groups = lengths.compute(RESULTS)["graphs"]["WN11"]
    runs = [(group["trained"], len(group["runs"])) for group in groups]
    assert runs == [(5, 3), (5, 3), (5, 3), (3, 1), (2, 1), (1, 1)]  # two by beams
    means = [
        [statistics.fmean(values) for values in zip(*group["runs"], strict=True)]
        for group in groups
    ]
    for by_training in list(zip(*means[1:], strict=True))[2:]:  # except the bidirectional one
        assert list(by_training) == sorted(by_training, reverse=True)


def test_the_late_category_is_chosen_as_the_text_says(found: dict[str, Any]) -> None:
    matched, base = found["runs"]
    (run,) = annealing_row(2, False, "TempMatch").runs
    records = complete_records(ANNEALING, run, RESULTS)
    epochs = {record.seed: epoch_of(record, 0.9) or 0.0 for record in records}
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
