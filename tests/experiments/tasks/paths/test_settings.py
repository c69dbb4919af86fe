"""Settings of path queries: what is refused, and the presets."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import pytest

from dcgraph.experiments.tasks.paths.settings import (
    AUTO,
    FB15K_237,
    FITTED,
    PAPER,
    PAPER_FB13,
    PAPER_FB15K_237,
    PRESETS,
    PathSettings,
    Size,
    compressed,
    fitted,
    quick,
)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"length": 0}, "at least 1"),
        ({"triples": 0}, "at least 1"),
        ({"dim": 0}, "at least 1"),
        ({"beam": 0}, "at least 1"),
        ({"object_dropout": 1.0}, r"\[0, 1\)"),
        ({"l2_entities": -1.0}, "at least 0"),
        ({"init": 0.0}, "stay there"),
        ({"monitor": "MRR"}, "not measured by protocol 'range'"),
        ({"model": "coke", "dim": 3}, "heads"),
        ({"beta_share": -1.0}, "share of tau"),
    ],
)
def test_settings_without_sense_are_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        replace(PAPER, **changes)


def test_presets_have_the_papers_settings_but_for_what_trains_better() -> None:
    assert (PAPER.epochs, PAPER.batch, PAPER.lr, PAPER.tau, PAPER.dim) == (200, 512, 1e-3, 4, 256)
    dropouts = [
        (s.subject_dropout, s.object_dropout, s.relation_dropout) for s in (PAPER, PAPER_FB13)
    ]
    assert dropouts == [(0.7, 0.1, 0.5), (0.1, 0.6, 0.2)]
    assert FB15K_237.inverse == "paths" and FB15K_237.monitor == "MRR"
    papers = {"best": PAPER, "fb13": PAPER_FB13, "fb15k-237": PAPER_FB15K_237}
    for name, paper in papers.items():
        ours = PRESETS[name]
        same = compressed(paper, ours.epochs)
        differ = {f.name for f in fields(same) if getattr(same, f.name) != getattr(ours, f.name)}
        less_dropout = {"object_dropout", "relation_dropout"}
        own = {
            "best": {"triples"},
            "fb13": less_dropout | {"triples"},
            "fb15k-237": less_dropout,
        }[name]
        assert differ == own | {
            *("init", "lr", "decay", "precision", "tau", "beta_share", "estimator")
        }
        entities = {"wn11": 38_696, "fb13": 75_043, "fb15k-237": 14_541}[ours.graph]
        assert ours.beta_share * math.log(entities) == pytest.approx(1, rel=1e-3)
    for whole, compact in ((PAPER, compressed(PAPER, 50)), (FB15K_237, compressed(FB15K_237, 10))):
        last = [
            (s.epochs * s.schedule_steps * s.gamma, s.epochs * s.schedule_steps * s.alpha_step)
            for s in (whole, compact)
        ]
        assert last[0] == pytest.approx(last[1], rel=1e-3)


def test_a_recipe_for_another_graph_asks_for_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="set beta_share"):
        quick(replace(PAPER, graph="wn18rr"), 10)


def test_beta_by_the_number_of_entities_is_a_dial_of_each_replica() -> None:
    """The largest of n Gumbel values is about beta ln n: a share of 1 / ln n keeps it at tau."""
    one, two = PAPER, replace(PAPER, beta_share=1 / math.log(38_696))
    assert one.structure() == two.structure()
    at_end = [settings.schedules()["beta"](10**6) for settings in (one, two)]
    assert at_end == pytest.approx([4.0, 4.0 / math.log(38_696)])
    assert one.structure() != replace(PAPER, noise="reversed").structure()


def steps_of(settings: PathSettings, size: Size) -> int:
    return settings.epochs * sum(examples // settings.batch for examples in size.examples)


@pytest.mark.parametrize("triples", [1, 8, 100, 240, 800, 8_000, 100_000, 1_000_000])
def test_a_run_is_long_enough_for_a_small_graph_and_ends_for_a_large_one(triples: int) -> None:
    size = Size(max(2, triples // 3), (triples,) * 3)
    found = fitted(AUTO, size)
    steps = steps_of(found, size)
    assert 1_900 <= steps <= 31_000
    assert found.batch <= triples, "whole batches are trained on"
    assert 3 * triples // found.batch * found.batch >= 0.8 * 3 * triples, "little waits in an epoch"
    schedule_steps = found.epochs * found.schedule_steps
    assert schedule_steps * found.gamma == pytest.approx(4.8, rel=0.01)
    assert schedule_steps * found.alpha_step == pytest.approx(3, rel=0.01)
    assert found.beta_share == pytest.approx(1 / math.log(max(3, triples // 3)), rel=0.01)
    assert 8 <= -(-found.epochs // found.evaluate_every) * found.evaluations <= 20


def test_what_is_chosen_stays_and_the_rest_fits_to_it() -> None:
    size = Size(100, (240, 240, 240))
    rule = fitted(AUTO, size)
    assert {f.name for f in fields(AUTO) if getattr(AUTO, f.name) != getattr(rule, f.name)} <= {
        *FITTED
    }
    assert fitted(rule, size, FITTED) == rule
    longer = fitted(replace(AUTO, epochs=10 * rule.epochs), size, {"epochs"})
    assert longer.epochs == 10 * rule.epochs and longer.batch == rule.batch
    assert longer.gamma * longer.epochs * longer.schedule_steps == pytest.approx(4.8, rel=0.01)
    small = fitted(replace(AUTO, batch=7, gamma=0.5), size, {"batch", "gamma"})
    assert (small.batch, small.gamma) == (7, 0.5)
    assert small.epochs < rule.epochs and steps_of(small, size) >= 1_900
    often = fitted(replace(AUTO, evaluations=2), size, {"evaluations"})
    assert (often.evaluations, often.evaluate_every) == (2, 1)


def test_a_table_with_few_paths_is_trained_on_too() -> None:
    assert fitted(AUTO, Size(7, (8, 3, 8))).batch == 3
