"""Tables that compare estimators: rows from the registry, tau by the validation split only."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from dcgraph._arguments import EstimatorName
from dcgraph.estimators import LOSS_ESTIMATORS, enumeration
from dcgraph.experiments.engine import comparison
from dcgraph.experiments.engine.comparison import METHODS, TAUS, Comparison
from dcgraph.experiments.engine.jobs import jobs_of
from dcgraph.experiments.engine.metrics import Metric
from dcgraph.experiments.engine.records import Curve
from dcgraph.experiments.engine.settings import MOST_RUNS, NEED_THE_LOSS, Settings
from dcgraph.experiments.engine.tables import Choice, Run, Table, as_json, as_text, record_of
from dcgraph.experiments.tasks import get_table
from dcgraph.experiments.tasks.listops.settings import PAPER
from made_up_records import VALIDATION, write_run
from parity import QUICK

ACCURACY = Metric("accuracy")
PARITY = Comparison("parity", QUICK, ACCURACY, "Parity")
TABLE = PARITY.estimators()
TABLES = [
    get_table(f"{what}-{task}")
    for what in ("estimators", "plane")
    for task in ("addition", "listops", "paths")
]


def write(table: Table, run: Run, results: Path, validation: float, test: float) -> None:
    """Records whose test is that, and a hundredth of the seed more."""

    def curve(seed: int) -> Curve:
        return Curve([1, 2], [0.5, 0.5], {VALIDATION: [0.1, validation]})

    write_run(table, run, results, curve, lambda seed: {ACCURACY: test + seed / 100})


def test_there_is_a_row_for_each_estimator_and_all_are_tuned_alike() -> None:
    assert [row.name for row in TABLE.rows] == list(get_args(EstimatorName))
    for row in TABLE.rows:
        assert len(row.choices) == len(METHODS) == 4
        for choice, (dropres, tempmatch) in zip(row.choices, METHODS.values(), strict=True):
            common = {"estimator": row.name, "dropres": dropres, "tempmatch": tempmatch}
            wanted = [replace(QUICK, tau=tau, **common) for tau in TAUS]  # type: ignore[arg-type]
            assert [run.settings for run in choice.tried] == wanted
            assert {tuple(run.each_seed) for run in choice.tried} == {(0, 1)}
            assert {tuple(run.each_seed) for run in choice.fresh_runs()} == {(2, 3, 4, 5)}


def test_an_estimator_that_the_task_refuses_is_left_out_with_the_reason() -> None:
    trees = replace(PAPER, prior="arborescence")
    table = Comparison("listops", trees, ACCURACY, "Trees").estimators()
    assert [row.name for row in table.rows] == ["gumbel_softmax"]
    assert "Without straight_through: estimator='straight_through' is for choices" in table.title
    assert "Without" not in TABLE.title


def test_validation_chooses_and_fresh_seeds_are_shown(tmp_path: Path) -> None:
    row = TABLE.rows[0]
    neither = row.choices[0]
    one, four = neither.tried
    assert neither.chosen("parity", tmp_path) is None and "not run" in as_text(TABLE, tmp_path)
    first = jobs_of(TABLE, row, tmp_path)
    assert len(first) == 2 * 2 * 4
    write(TABLE, one, tmp_path, validation=0.5, test=0.9)  # better on the test, which is no reason
    assert neither.chosen("parity", tmp_path) is None, "only half of it was tried"
    write(TABLE, four, tmp_path, validation=0.6, test=0.3)
    last = record_of(four, 1, "parity", tmp_path)
    content = last.read_bytes()
    last.unlink()
    assert neither.chosen("parity", tmp_path) is None, "a seed of it is missing"
    last.write_bytes(content)
    chosen = neither.chosen("parity", tmp_path)
    assert chosen == neither.fresh_runs()[1]
    more = [job for job in jobs_of(TABLE, row, tmp_path) if job not in first]
    assert {(job.settings.tau, job.settings.seed) for job in more} == {
        (4.0, s) for s in (2, 3, 4, 5)
    }
    for fresh, test in zip(neither.fresh_runs(), (0.8, 0.2), strict=True):
        write(TABLE, fresh, tmp_path, validation=1.0, test=test)
    assert neither.chosen("parity", tmp_path) == chosen, (
        "the validation of fresh seeds is no reason"
    )
    cells = {cell["column"]: cell for cell in as_json(TABLE, tmp_path) if cell["row"] == row.name}
    assert cells["neither, test"]["mean"] == pytest.approx(20 + 3.5)
    assert cells["neither, test"]["seeds"] == 4 and cells["neither, chosen tau"]["mean"] == 4
    assert cells["both, test"]["mean"] is None


def test_the_mean_of_the_seeds_decides_and_the_first_of_equals(tmp_path: Path) -> None:
    tried = tuple(
        Run(name, replace(QUICK, tau=tau), seeds=2) for name, tau in (("a", 1.0), ("b", 2.0))
    )
    choice = Choice(tried, fresh=1)

    def curves(values: tuple[float | None, ...], run: Run) -> None:
        write_run(
            TABLE, run, tmp_path, lambda seed: Curve([1], [0.5], {VALIDATION: [values[seed]]})
        )

    curves((0.9, 0.1), tried[0])
    curves((0.6, 0.6), tried[1])
    assert choice.chosen("parity", tmp_path) == choice.fresh_runs()[1]
    curves((0.6, 0.6), tried[0])
    assert choice.chosen("parity", tmp_path) == choice.fresh_runs()[0]
    curves((None, 0.9), tried[0])  # one run never gave a number
    assert choice.chosen("parity", tmp_path) == choice.fresh_runs()[1]


def test_a_plane_has_each_run_in_its_cell(tmp_path: Path) -> None:
    plane = PARITY.plane()
    places = {
        (part, tau, beta): comparison.plane_run(QUICK, estimator, tau, beta)
        for part, estimator in comparison.PLANE.items()
        for tau in comparison.PLANE_TAUS
        for beta in comparison.BETAS
    }
    assert set(comparison.PLANE_TAUS) <= set(comparison.PLANE_BETAS), "the diagonal lies in it"
    for k, run in enumerate(places.values()):
        write_run(plane, run, tmp_path, metrics=lambda seed, k=k: {ACCURACY: k / 100})  # type: ignore[misc]
    cells = {(cell["row"], cell["column"]): cell for cell in as_json(plane, tmp_path)}
    assert len(cells) == len(places)
    for k, (part, tau, beta) in enumerate(places):
        column = "TempMatch" if beta is None else f"beta {beta:g}"
        cell = cells[f"tau {tau:g}", f"{column}, {part}"]
        assert (cell["mean"], cell["seeds"]) == (pytest.approx(k), comparison.PLANE_SEEDS)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_name_stands_for_one_setting_and_a_setting_has_one_name(table: Table) -> None:
    """Over both tables of a task, which share some runs."""
    runs = [
        run
        for other in TABLES
        if other.task == table.task
        for row in other.rows
        for run in row.possible_runs()
    ]
    names: dict[str, Settings] = {run.name: run.settings for run in runs}
    assert all(names[run.name] == run.settings for run in runs)
    assert len(set(names.values())) == len(names)
    assert len({column.title for column in table.columns}) == len(table.columns)


@pytest.mark.parametrize("task", ["addition", "listops", "paths"])
def test_the_tables_of_a_task_share_runs(task: str) -> None:
    """The plane has the diagonal's seeds among the fresh ones of the estimators."""
    both = [
        {(r.name, s) for row in table.rows for r in row.possible_runs() for s in r.each_seed}
        for table in TABLES
        if table.task == task
    ]
    assert len(both[0] & both[1]) == 2 * 2 * 2 * comparison.PLANE_SEEDS


def test_what_is_known_without_torch_is_what_the_library_has() -> None:
    assert set(NEED_THE_LOSS) == set(LOSS_ESTIMATORS)
    assert inspect.signature(enumeration).parameters["limit"].default == MOST_RUNS
