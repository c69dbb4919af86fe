"""The runs that tables of addition are made of."""

from __future__ import annotations

from dataclasses import replace

from dcgraph.experiments.engine.tables import Run, Table
from dcgraph.experiments.figures.annealing import run_with
from dcgraph.experiments.tasks.addition import tables

RUNS: list[Run] = [
    run
    for table in vars(tables).values()
    if isinstance(table, Table)
    for row in table.rows
    for run in row.runs
]


def test_a_name_stands_for_one_setting_and_a_setting_has_one_name() -> None:
    """Else two tables would overwrite each other's records, or train the same twice."""
    by_name = {run.name: (run.settings, run.probes) for run in RUNS}
    assert len(by_name) == 33
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
