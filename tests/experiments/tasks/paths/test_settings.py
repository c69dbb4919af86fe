"""Settings of path queries: what is refused, and the presets."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import pytest

from dcgraph.experiments.tasks.paths.settings import (
    FB15K_237,
    PAPER,
    PAPER_FB13,
    PAPER_FB15K_237,
    PRESETS,
    compressed,
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
