"""Settings and sweeps: what a population is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dcgraph as dc
from dcgraph.experiments.engine.jobs import file_name, labels, replica_names
from dcgraph.experiments.engine.settings import (
    Settings,
    Sweep,
    expand,
    from_dict,
    parse_sweep,
    per_replica,
    populations,
)
from dcgraph.experiments.tasks import TABLES, get_table
from parity import ParitySettings

BASE = ParitySettings()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"lr": 0.0}, "learning rate"),
        ({"lr": float("nan")}, "finite"),
        ({"epochs": -1}, "at least 0"),
        ({"decay": 0.0}, "share of training"),
        ({"average": 1.0}, "decay"),
        ({"tau": -1.0}, "temperature"),
        ({"gamma": 0.0}, "rate of growth"),
        ({"beta_share": 0.0}, "share of tau"),
        ({"evaluate_every": 0}, "at least 1"),
        ({"evaluate_every": 2}, "exclude each other"),
        ({"beta": -1.0, "tempmatch": False}, "noise scale"),
    ],
)
def test_impossible_settings_say_what_is_possible(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        replace(BASE, **changes)


def at(settings: Settings, t: int) -> dict[str, float]:
    return dc.Dials(**settings.schedules()).at(t)


def test_the_switches_are_the_papers() -> None:
    both = replace(BASE, tau=8.0, gamma=0.5, alpha_step=0.1)
    third = at(both, 3)
    assert third == pytest.approx({"tau": 8, "beta": 8 * (1 - 2.718281828**-1.5), "alpha": 0.3})
    assert at(replace(both, beta_share=0.5), 3)["beta"] == pytest.approx(third["beta"] / 2)
    neither = replace(both, tempmatch=False, dropres=False)
    assert at(neither, 0) == at(neither, 3) == {"tau": 8, "beta": 1, "alpha": 1}
    annealed = replace(both, tempmatch=False, anneal=True)
    assert at(annealed, 2)["tau"] == pytest.approx(8 * 2.718281828**-1)
    assert at(annealed, 1000)["tau"] == 1
    assert at(replace(annealed, tau=0.5), 1000)["tau"] == 0.5, "annealing does not heat"


@pytest.mark.parametrize("name", TABLES)
def test_schedules_of_all_tables_are_the_papers_to_the_last_bit(name: str) -> None:
    """The records of a table were made with these formulas; dials are float32."""
    every = {run.settings for row in get_table(name).rows for run in row.possible_runs()}
    assert every
    for s in every:
        # An epoch whose steps are not a multiple of schedule_steps has up to twice as many.
        steps = range(2 * s.epochs * s.schedule_steps + 1)
        coldest = min(1.0, s.tau)
        formulas = {
            "tau": [max(coldest, s.tau * math.exp(-s.gamma * t)) for t in steps],
            "alpha": [min(1.0, s.alpha_step * t) for t in steps],
        }
        if not s.anneal:
            formulas["tau"] = [s.tau] * len(steps)
        if not s.dropres:
            formulas["alpha"] = [1.0] * len(steps)
        dials = dc.Dials(**s.schedules())
        found = [dials.at(t) for t in steps]
        for dial, expected in formulas.items():
            values = torch.tensor([at_step[dial] for at_step in found])
            assert torch.equal(values, torch.tensor(expected)), (dial, s)


def test_a_sweep_is_every_combination_with_every_seed() -> None:
    sweeps = [parse_sweep("tau=1,2,4", BASE), parse_sweep("lr=1e-4,3e-4", BASE)]
    replicas = expand(BASE, sweeps, seeds=2)
    assert len(set(replicas)) == len(replicas) == 12
    assert {(r.tau, r.lr, r.seed) for r in replicas} == {
        (tau, lr, seed) for tau in (1, 2, 4) for lr in (1e-4, 3e-4) for seed in (0, 1)
    }
    assert len(populations(replicas)) == 1


def test_switches_and_whole_numbers_can_be_swept() -> None:
    replicas = expand(BASE, [parse_sweep("dropres=0,1", BASE), parse_sweep("batch=8,16", BASE)])
    assert [(r.dropres, r.batch) for r in replicas] == [
        (False, 8), (False, 16), (True, 8), (True, 16),
    ]  # fmt: skip
    assert [len(group) for group in populations(replicas)] == [2, 2]


def test_random_search_draws_from_ranges_and_repeats() -> None:
    sweeps = [parse_sweep("lr=1e-4..1e-2:log", BASE), parse_sweep("width=4..64", BASE)]
    replicas = expand(BASE, sweeps, seeds=2, draws=50, search_seed=3)
    assert len(replicas) == 100
    assert all(1e-4 <= r.lr <= 1e-2 and 4 <= r.width <= 64 for r in replicas)
    assert all(isinstance(r.width, int) for r in replicas)
    below = sum(r.lr < 1e-3 for r in replicas[::2])
    assert 12 <= below <= 38  # half of the draws, on a logarithmic scale
    assert replicas == expand(BASE, sweeps, seeds=2, draws=50, search_seed=3)
    assert replicas[0].lr == replicas[1].lr and replicas[0].seed != replicas[1].seed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tau", "name=1,2,4"),
        ("taw=1", "did you mean 'tau'"),
        ("tau=1,x", "'x' is not a number; write tau=1,2."),
        ("width=1,2.5", "'2.5' is not a whole number; write width=1,2."),
        ("lr=1..x", "'x' is not a number; write lr=1..2."),
        ("dropres=2", "0 or 1"),
        ("lr=2..1", "low < high"),
        ("lr=0..1:log", "low > 0"),
        ("lr=1e-4..1e-2:lgo", "'lgo' is not a number; write lr=1..2:0.1."),
        ("tau=1..2:3", "steps are tau=0..1:0.1"),
        ("tau=1..2:nan", "steps are"),
        ("tau=1..2:x1", "steps are"),
        ("tau=0..2:x10", "low > 0"),
        ("tau=1..2:1e-9", "more than 1000 steps"),
        ("width=1..2:0.5", "whole steps"),
        ("seed=1,2", "cannot sweep"),
        (f"tau={'9' * 9000}x", r"^sweep 'tau=9{55}\.\.\.: '9{59}\.\.\. is not a number"),
    ],
)
def test_wrong_sweeps_say_what_is_right(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_sweep(text, BASE)


def test_a_range_in_steps_is_a_list() -> None:
    assert parse_sweep("beta_share=0..0.8:0.1", BASE).values == tuple(k / 10 for k in range(9))
    assert parse_sweep("lr=1e-20..1e-5:x10", BASE).values == tuple(
        float(f"1e{k}") for k in range(-20, -4)
    )
    widths = parse_sweep("width=4..65:20", BASE)
    assert widths.values == (4, 24, 44, 64) and all(type(one) is int for one in widths.values)
    assert widths.high == 64, "the last one that is reached"
    assert len(expand(BASE, [parse_sweep("tau=1..2:0.5", BASE)])) == 3, "and no draw"


def test_ranges_and_draws_belong_together() -> None:
    with pytest.raises(ValueError, match="--draws"):
        expand(BASE, [Sweep("lr", low=1e-4, high=1e-2)])
    with pytest.raises(ValueError, match="--draws"):
        expand(BASE, [Sweep("lr", (1e-4,))], draws=3)
    with pytest.raises(ValueError, match="swept twice"):
        expand(BASE, [Sweep("lr", (1e-4,)), Sweep("lr", (1e-3,))])


def test_a_value_given_twice_is_one_and_a_switch_has_no_range() -> None:
    assert len(expand(BASE, [parse_sweep("tau=1,1.0,2", BASE)])) == 2
    with pytest.raises(ValueError, match="dropres=0,1"):
        parse_sweep("dropres=0..1", BASE)


def test_replicas_that_differ_have_different_names() -> None:
    close = expand(BASE, [parse_sweep("tau=8.0000001,8.0000002", BASE)])
    assert len(set(replica_names(close))) == 2
    seeds = expand(BASE, seeds=2)
    assert labels(seeds) == ["", ""], "the seed is not counted"
    assert replica_names(seeds) == ["seed-0", "seed-1"]
    assert replica_names(close)[0] == "tau-8.0000001_seed-0"


@given(st.lists(st.text(max_size=400), min_size=2, max_size=6, unique=True))
def test_names_of_files_lead_nowhere_and_are_not_too_long(texts: list[str]) -> None:
    several = {"a/../../b", "..", "", "CON\0", "x" * 999, *texts}
    names = {file_name(text) for text in several}
    assert len(names) == len(several)
    for name in names:
        assert len(name.encode()) <= 140 and name not in ("", ".", "..")
        assert Path("folder", name).parent == Path("folder") and name.isprintable()


def test_only_the_loops_own_numbers_can_differ_within_a_population() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Wrong(Settings):
        scale: float = per_replica(1.0, "the loop does not know it")

    with pytest.raises(ValueError, match=r"mark it setting\(\)"):
        Wrong()


def test_settings_from_a_file_have_known_names() -> None:
    assert from_dict(Settings, {"lr": 0.5}).lr == 0.5
    with pytest.raises(ValueError, match="did you mean 'gamma'"):
        from_dict(Settings, {"gama": 1.0})
