"""Tables of path queries: their runs, and the settings behind them."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import pytest

from dcgraph.experiments.engine.metrics import Metric, Metrics
from dcgraph.experiments.engine.records import Curve, PopulationInfo, Record, Selection
from dcgraph.experiments.engine.settings import Settings
from dcgraph.experiments.engine.tables import Run, Table
from dcgraph.experiments.tasks.paths import search, tables
from dcgraph.experiments.tasks.paths.settings import BEST, SMALL, PathSettings

TABLES = {
    table.name: table
    for module in (tables, search)
    for table in vars(module).values()
    if isinstance(table, Table) and table not in (tables.ESTIMATORS, tables.PLANE)
}


def every_run() -> list[Run]:
    return [run for table in TABLES.values() for row in table.rows for run in row.runs]


def test_a_run_has_one_name_and_a_name_one_run() -> None:
    names: dict[str, set[Settings]] = {}
    settings: dict[Settings, set[str]] = {}
    kept: dict[str, set[tuple[int, bool]]] = {}
    for run in every_run():
        names.setdefault(run.name, set()).add(run.settings)
        settings.setdefault(run.settings, set()).add(run.name)
        kept.setdefault(run.name, set()).add((run.seeds, run.probes))
        assert re.fullmatch(r"[a-z0-9]+([-.][a-z0-9]+)*", run.name) and len(run.name) <= 45
        assert isinstance(run.settings, PathSettings) and run.settings.seed == 0
    assert len(names) > 90
    for some in (names, settings, kept):
        assert {len(each) for each in some.values()} == {1}


def test_the_names_of_runs_begin_with_their_graph() -> None:
    for run in every_run():
        assert isinstance(run.settings, PathSettings)
        assert run.name.startswith(f"{run.settings.graph}-")


def test_tables_share_the_runs_on_all_paths() -> None:
    runs = [
        {run for row in table.rows for run in row.runs}
        for table in (tables.PATHS, tables.EXTRAPOLATION)
    ]
    common = {run.name: run.seeds for run in runs[0] & runs[1]}
    assert common == {
        "wn11-coke": 1, "wn11-soft": 3, "wn11-variant-triples-once": 3, "wn11-variant": 3,
        "fb13-coke": 1, "fb13-variant": 1,
    }  # fmt: skip
    for other in (tables.SMALL_BEAM, tables.SMALL_BIDIRECTIONAL):
        assert [row.runs for row in other.rows] == [row.runs for row in tables.SMALL.rows]


def test_presets_are_rows() -> None:
    by_name = {run.name: run.settings for run in every_run()}
    assert by_name["wn11-variant"] == BEST and by_name["umls-paper"] == SMALL


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_rows_and_columns_have_names_of_their_own(table: Table) -> None:
    assert len({row.name for row in table.rows}) == len(table.rows)
    assert len({column.title for column in table.columns}) == len(table.columns)
    assert all(column in table.columns for row in table.rows for column in row.paper)


def record_with(metrics: list[Metric], curve: list[Metric], selected: Metric) -> Record:
    """Metric number k is k / 100, so that a column shows its number; at another step it is 0."""
    values: Metrics = {metric: number / 100 for number, metric in enumerate(metrics)}
    seen: dict[Metric, list[float | None]]
    seen = {metric: [0.0, number / 100] for number, metric in enumerate(curve)}
    return Record(
        task="paths", settings={"epochs": 7}, code="", data="", hardware="", torch="",
        seconds=360.0, steps=20, parameters=1, population=PopulationInfo("", 3),
        selection=Selection(selected, 20), stopped_at=None,
        curve=Curve([10, 20], [1.0, 1.0], seen),
        calibration={"inverse temperature": 3.0, "bidirectional weight": 0.25},
        metrics=values,
    )  # fmt: skip


def shown(table: Table, record: Record) -> dict[str, float | None]:
    return {column.title: column.value(record) for column in table.columns}


def test_columns_of_the_papers_table() -> None:
    names = {
        "optimistic ties": {"ties": "optimistic"},
        "realistic ties": {},
        "beam search": {"decoder": "beam"},
        "argmax, bidirectional": {"bidirectional": True},
        "beam search, bidirectional": {"decoder": "beam", "bidirectional": True},
    }
    metrics = [Metric(name, **how) for how in names.values() for name in ("MQ", "H@10")]  # type: ignore[arg-type]
    titles = [f"{name}, {words}" for words in names for name in ("MQ", "H@10")]
    others = [replace(metric, length=1) for metric in metrics]
    others += [replace(metric, set="validation") for metric in metrics]
    record = record_with(metrics + others, [], metrics[0])
    expected = {title: pytest.approx(number) for number, title in enumerate(titles)}
    for table in (tables.PATHS, tables.EXTRAPOLATION):
        assert shown(table, record) == {**expected, "epochs": 7, "minutes a run": 2}
    assert list(shown(tables.PATHS, record)) == [*titles, "epochs", "minutes a run"]


def test_columns_by_length() -> None:
    for table, how in (
        (tables.FB15K_237, {}),
        (tables.SMALL, {}),
        (tables.SMALL_BEAM, {"decoder": "beam"}),
        (tables.FB15K_237_BEAM, {"decoder": "beam"}),
        (tables.SMALL_BIDIRECTIONAL, {"decoder": "beam", "bidirectional": True}),
    ):
        metrics = [Metric("MRR", length=length, **how) for length in range(1, 11)]
        found = shown(table, record_with(metrics, [], metrics[0]))
        for number in range(10):
            assert found.pop(f"{number + 1}") == pytest.approx(number)
        assert found in ({}, {"weight": 0.25}, {"epochs": 7, "minutes a run": 2})
        assert ("weight" in found) == (table is tables.SMALL_BIDIRECTIONAL)


def test_columns_of_the_search_are_of_the_selected_weights() -> None:
    curve = [Metric("loss", "validation"), Metric("MQ", "validation"), Metric("H@10", "validation")]
    record = record_with([Metric("MQ"), Metric("H@10")], curve, curve[2])
    assert shown(search.SHORT, record) == {
        "MQ, validation": 1, "H@10, validation": 2, "epochs": 7, "minutes a run": 2
    }  # fmt: skip
    for table in (search.SEARCH, search.NOISE):
        found = shown(table, record)
        assert found["H@10, validation"] == 2 and found["H@10, realistic ties"] == 1


def test_tables_and_settings_need_no_torch() -> None:
    room = "dcgraph.experiments.tasks.paths"
    program = f"import sys; sys.modules['torch'] = None; import {room}.tables, {room}.search"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
