"""The tables of ListOps: their runs have one name each, and the ladder goes step by step."""

from __future__ import annotations

import itertools
from dataclasses import asdict, replace

import pytest

from dcgraph.experiments.engine.settings import Settings
from dcgraph.experiments.engine.tables import Run, Table
from dcgraph.experiments.tasks.listops.settings import BEST, PAPER
from dcgraph.experiments.tasks.listops.tables import ABLATION, LADDER, LISTOPS, MASKS

TABLES = (LISTOPS, ABLATION, MASKS, LADDER)
RUNS = [run for table in TABLES for row in table.rows for run in row.runs]


def test_no_name_stands_for_two_runs_and_no_settings_have_two_names() -> None:
    by_name: dict[str, set[Run]] = {}
    by_settings: dict[str, set[str]] = {}
    for run in RUNS:
        by_name.setdefault(run.name, set()).add(run)
        by_settings.setdefault(str(asdict(replace(run.settings, seed=0))), set()).add(run.name)
    assert all(len(runs) == 1 for runs in by_name.values()), by_name
    assert all(len(names) == 1 for names in by_settings.values()), by_settings


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_rows_and_columns_have_names_of_their_own(table: Table) -> None:
    for named in (
        [row.name for row in table.rows],
        [column.title for column in table.columns],
    ):
        assert len(set(named)) == len(named)


def test_the_columns_are_those_of_the_paper_and_more() -> None:
    names = ["task", "edge", "inter", "d8", "d10"]
    more = ["d8, 100 tokens", "d10, 100 tokens", "critical, depth 5", "critical, depth 8"]
    titles = [f"{name}, {decoder}" for decoder in ("sample", "argmax") for name in names + more]
    assert [column.title for column in LISTOPS.columns] == titles
    said = {column.title for row in LISTOPS.rows for column in row.paper}
    assert said == {f"{name}, sample" for name in names}, "the paper decodes by sampling"


def changed(before: Settings, after: Settings) -> set[str]:
    one, other = asdict(before), asdict(after)
    return {name for name in one if one[name] != other[name]}


def test_each_rung_of_the_ladder_changes_one_thing() -> None:
    names = [row.name for row in LADDER.rows]
    first, last = names.index("The paper's method, tau 1"), names.index("+ restart: preset best")
    rungs = [run.settings for row in LADDER.rows[first : last + 1] for run in row.runs]
    assert rungs[0] == PAPER and rungs[-1] == BEST
    steps = list(itertools.starmap(changed, itertools.pairwise(rungs)))
    recipe = steps[3]
    assert not recipe & {"encoder", "parents", "earlier", "senders", "restart", "silent_root"}
    assert steps == [
        {"silent_root"},
        {"silent_root", "earlier"},  # which implies it
        {"parents"},
        recipe,
        {"encoder"},
        {"encoder"},
        {"encoder"},
        {"senders"},
        {"restart"},
    ]


def test_every_rung_says_what_it_is_given() -> None:
    assert all(row.given for row in LADDER.rows)
    assert all(run.seeds == 8 for row in LADDER.rows[1:] for run in row.runs)
