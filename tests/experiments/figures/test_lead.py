"""The chance of a leading category, against draws."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import dcgraph as dc
from dcgraph.experiments.figures import lead
from pictures import check_figure


@pytest.mark.parametrize("way", [replace(way, rivals=n) for way in lead.WAYS for n in (9, 2000)])
def test_the_chance_of_a_leader_is_that_of_the_librarys_noise(way: lead.Way) -> None:
    """A closed form against draws: five standard deviations of 2,000 of them."""
    torch.manual_seed(0)
    ahead = way.beta * math.log(way.rivals) / (4 if way.noise == "reversed" else 1)
    theta = torch.zeros(100, way.rivals + 1)
    theta[:, 0] = ahead
    won = sum(int((dc.sample(theta, beta=way.beta, noise=way.noise) == 0).sum()) for _ in range(20))
    expected = lead.chance(ahead, way)
    assert 0.1 < expected < 0.9
    assert won / 2000 == pytest.approx(expected, abs=5 * (0.25 / 2000) ** 0.5)


def test_the_picture_is_made_of_the_seed_only(tmp_path: Path) -> None:
    check_figure("lead", lambda seed: lead.compute(seed, draws=100), tmp_path)
