"""Learning curves of annealing schemes: none is dropped, and what arrived is counted."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from dcgraph.experiments.engine.records import Curve
from dcgraph.experiments.figures import annealing
from dcgraph.experiments.tasks.addition.tables import ANNEALING, annealing_row
from made_up_records import VALIDATION, write_run
from pictures import check_from_records

EPOCHS = 30


def arrival(row: int, seed: int) -> int:
    """The epoch in which a made-up run jumps from 0.5 to 0.95; some never do."""
    return 5 + row + 4 * seed


def curve(row: int, seed: int) -> Curve:
    steps = [10 * epoch for epoch in range(1, EPOCHS + 1)]
    accuracy = [0.95 if epoch >= arrival(row, seed) else 0.5 for epoch in range(1, EPOCHS + 1)]
    return Curve(steps, [0.0] * EPOCHS, {VALIDATION: list(accuracy)})


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    for k, row in enumerate(ANNEALING.rows):
        (run,) = row.runs
        write_run(ANNEALING, run, folder, lambda seed, k=k: curve(k, seed))  # type: ignore[misc]
    return folder


@pytest.fixture(scope="module")
def curves(results: Path) -> dict[str, Any]:
    return annealing.compute(results)


def test_the_picture_is_drawn_from_the_json_only(results: Path, tmp_path: Path) -> None:
    assert check_from_records("annealing", results, tmp_path)["figure"] == "annealing"
    check_from_records("annealing-runs", results, tmp_path)


def test_no_run_is_dropped_and_what_is_reached_is_that_of_its_record(
    curves: dict[str, Any],
) -> None:
    names = [row.name for row in ANNEALING.rows]
    assert len(curves["groups"]) == len(names) == 12
    for group in curves["groups"]:
        row = annealing_row(group["summands"], group["dropres"], group["scheme"]).name
        assert [run["seed"] for run in group["runs"]] == list(range(9))
        for run in group["runs"]:
            epoch = arrival(names.index(row), run["seed"])
            assert run["reached"] == [epoch if epoch <= EPOCHS else None, None]
            assert run["epochs"] == list(range(1, EPOCHS + 1))


def test_the_latest_runs_are_the_latest(curves: dict[str, Any]) -> None:
    runs = annealing._schemes(curves, 2, False)["TauAnn"]
    one, two = annealing._latest(runs)
    others = [run["reached"][0] for run in runs if run not in (one, two)]
    arrived = [epoch for epoch in others if epoch is not None]
    assert one["reached"][0] > two["reached"][0] > max(arrived) and len(arrived) < 7
    assert annealing._latest([{"reached": [None, None]}]) == []


def test_a_run_that_stopped_is_drawn_too(curves: dict[str, Any], tmp_path: Path) -> None:
    broken = copy.deepcopy(curves)
    run = broken["groups"][0]["runs"][0]
    run["accuracy"][20:] = [None] * len(run["accuracy"][20:])
    for draw in (annealing.draw, annealing.draw_runs):
        draw(broken, tmp_path / "picture")
