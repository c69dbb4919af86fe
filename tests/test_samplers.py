"""Samplers over many seeds: p-values of goodness of fit are uniform. `make samplers` has 200."""

from __future__ import annotations

import pytest
import torch

import dcgraph as dc
import samplers
from statistics_of_fit import kolmogorov_p


@pytest.mark.parametrize("name", samplers.SAMPLERS)
def test_p_values_over_many_seeds_are_uniform(name: str) -> None:
    assert kolmogorov_p(samplers.p_values(name, 50)) > 1e-4


@pytest.mark.parametrize("wrong", ["reversed", "scaled", "shifted"])
def test_the_test_of_p_values_sees_what_a_single_seed_does_not(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw() -> float:
        noise = dc.gumbel([1024])
        changed = {"reversed": -noise, "scaled": 1.1 * noise, "shifted": noise + 0.05}
        return samplers.of_gumbel(changed[wrong])

    monkeypatch.setitem(samplers.SAMPLERS, "wrong", draw)
    found = samplers.p_values("wrong", 400)
    assert kolmogorov_p(found) < 1e-4
    if wrong != "reversed":
        assert float(torch.median(found)) > 0.05, "half of the seeds notice nothing"
