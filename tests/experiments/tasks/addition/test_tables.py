"""The runs that tables of addition are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dcgraph.experiments.engine.metrics import Metric
from dcgraph.experiments.engine.records import Curve
from dcgraph.experiments.engine.tables import Run, Table, as_json
from dcgraph.experiments.figures.annealing import run_with
from dcgraph.experiments.tasks.addition import chain_tables, tables
from made_up_records import write_run

RUNS: list[Run] = [
    run
    for table in (*vars(tables).values(), *vars(chain_tables).values())
    if isinstance(table, Table) and table not in (tables.ESTIMATORS, tables.PLANE)
    for row in table.rows
    for run in row.runs
]


def test_a_name_stands_for_one_setting_and_a_setting_has_one_name() -> None:
    """Else two tables would overwrite each other's records, or train the same twice."""
    by_name = {run.name: (run.settings, run.probes) for run in RUNS}
    assert len(by_name) == 42
    assert all(by_name[run.name] == (run.settings, run.probes) for run in RUNS)
    assert len({settings for settings, _ in by_name.values()}) == len(by_name)
    assert all(run.settings == replace(run.settings, seed=0) for run in RUNS)


def test_only_what_a_figure_needs_keeps_its_probe_curves() -> None:
    needed = {run_with(2, False, scheme).name for scheme in ("base", "TempMatch")}
    assert {run.name for run in RUNS if run.probes} == needed


def test_names_say_which_runs_have_their_weights_selected_on_the_test_set() -> None:
    for run in RUNS:
        on_test = run.settings.protocol == "paper"  # type: ignore[attr-defined]
        assert run.name.endswith("-test-selected") == on_test


def cells(table: Table, row: str, results: Path) -> dict[str, float | None]:
    return {cell["column"]: cell["mean"] for cell in as_json(table, results) if cell["row"] == row}


def test_each_protocol_fills_its_own_columns(tmp_path: Path) -> None:
    """Best on test: of all evaluations. Clean: one test of the weights selected on validation."""
    row = tables.ADDITION.rows[-1]
    on_test, clean = row.runs
    write_run(
        tables.ADDITION,
        on_test,
        tmp_path,
        lambda seed: Curve(
            [1, 2, 3],
            [0.0] * 3,
            {
                Metric("accuracy", "test"): [0.1, 0.6, None],
                Metric("accuracy", "test", "sample"): [0.1, 0.2, 0.5],
            },
        ),
        lambda seed: {Metric("accuracy"): 0.99, Metric("digit accuracy"): 0.99},
    )
    write_run(
        tables.ADDITION,
        clean,
        tmp_path,
        lambda seed: Curve([1, 2], [0.0] * 2, {Metric("accuracy", "validation"): [0.98, 0.97]}),
        lambda seed: {
            Metric("accuracy"): 0.4,
            Metric("accuracy", decoder="sample"): 0.3,
            Metric("digit accuracy"): 0.7,
            Metric("addition table accuracy"): 0.8,
        },
    )
    assert cells(tables.ADDITION, row.name, tmp_path) == {
        "best on test, sample": pytest.approx(50),
        "best on test, argmax": pytest.approx(60),
        "clean, sample": pytest.approx(30),
        "clean, argmax": pytest.approx(40),
        "digits": pytest.approx(70),
        "addition table": pytest.approx(80),
    }


def test_a_model_without_nodes_has_one_number_for_both_decoders(tmp_path: Path) -> None:
    row = tables.ADDITION.rows[0]
    for run, split in zip(row.runs, ("test", "validation"), strict=True):
        write_run(
            tables.ADDITION,
            run,
            tmp_path,
            lambda seed, split=split: Curve([1], [0.0], {Metric("accuracy", split): [0.5]}),  # type: ignore[misc]
            lambda seed: {Metric("accuracy"): 0.4},
        )
    found = cells(tables.ADDITION, row.name, tmp_path)
    assert [found[f"best on test, {decoder}"] for decoder in ("sample", "argmax")] == [50, 50]
    assert [found[f"clean, {decoder}"] for decoder in ("sample", "argmax")] == [40, 40]
    assert found["digits"] is None and found["addition table"] is None


def test_when_an_accuracy_was_reached(tmp_path: Path) -> None:
    row = tables.annealing_row(2, False, "base")
    (run,) = row.runs

    def curve(seed: int) -> Curve:
        accuracy = [0.5, 0.95, 0.98] if seed < 3 else [0.5, 0.5, 0.5]
        held_out = Metric("accuracy", "validation")
        return Curve([100, 200, 300], [0.0] * 3, {held_out: list(accuracy)})

    write_run(tables.ANNEALING, run, tmp_path, curve, lambda seed: {Metric("accuracy"): 0.5})
    found = cells(tables.ANNEALING, row.name, tmp_path)
    assert found["reached 0.9 (%)"] == pytest.approx(100 / 3, abs=1e-3)
    assert found["at epoch (0.9)"] == 20 and found["at epoch (0.97)"] == 30
