"""Tables of path queries: their runs, and the settings behind them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from dcgraph.experiments.engine.settings import Settings
from dcgraph.experiments.engine.tables import Run, Table
from dcgraph.experiments.tasks.paths import search, tables
from dcgraph.experiments.tasks.paths.settings import BEST, SMALL, PathSettings

TABLES = {
    table.name: table
    for module in (tables, search)
    for table in vars(module).values()
    if isinstance(table, Table)
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
        "wn11-coke": 1, "wn11-ours-soft": 3, "wn11-ours-triples-once": 3, "wn11-ours": 3,
        "fb13-coke": 1, "fb13-ours": 1,
    }  # fmt: skip
    for other in (tables.SMALL_BEAM, tables.SMALL_BIDIRECTIONAL):
        assert [row.runs for row in other.rows] == [row.runs for row in tables.SMALL.rows]


def test_presets_are_rows() -> None:
    by_name = {run.name: run.settings for run in every_run()}
    assert by_name["wn11-ours"] == BEST and by_name["umls-ours"] == SMALL


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_rows_and_columns_have_names_of_their_own(table: Table) -> None:
    assert len({row.name for row in table.rows}) == len(table.rows)
    assert len({column.title for column in table.columns}) == len(table.columns)
    assert all(column in table.columns for row in table.rows for column in row.paper)


def test_columns_of_the_papers_table() -> None:
    assert [column.title for column in tables.PATHS.columns] == [
        "MQ, optimistic ties",
        "H@10, optimistic ties",
        "MQ, realistic ties",
        "H@10, realistic ties",
        "MQ, beam search",
        "H@10, beam search",
        "MQ, argmax, bidirectional",
        "H@10, argmax, bidirectional",
        "MQ, beam search, bidirectional",
        "H@10, beam search, bidirectional",
        "epochs",
        "minutes a run",
    ]


def test_tables_and_settings_need_no_torch() -> None:
    room = "dcgraph.experiments.tasks.paths"
    program = f"import sys; sys.modules['torch'] = None; import {room}.tables, {room}.search"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
