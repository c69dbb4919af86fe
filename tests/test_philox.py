"""Noise as a function of a key and a column."""

from __future__ import annotations

import torch

from dcgraph._philox import draw_gumbel_at, draw_gumbel_of
from statistics_of_fit import kolmogorov_p


def test_noise_is_gumbel_with_a_fine_tail() -> None:
    keys = torch.arange(5, 21)
    noise = draw_gumbel_at(keys, 0, 20_000)
    assert noise.isfinite().all()
    uniform = torch.exp(-torch.exp(-noise.double()))
    assert kolmogorov_p(uniform.flatten()) > 1e-4
    centred = uniform - 0.5
    for apart in (1, 32, 64, 96, 128):  # 32 apart are words of one draw
        correlation = (centred[:, :-apart] * centred[:, apart:]).mean() * 12
        assert abs(correlation) < 5 / noise.numel() ** 0.5, apart
    assert abs((centred[1:] * centred[:-1]).mean() * 12) < 5 / noise.numel() ** 0.5
    assert len(noise.flatten().topk(2000).values.unique()) > 1990
    column = torch.randint(20_000, (16,))
    assert torch.equal(draw_gumbel_of(keys, column), noise.gather(1, column.unsqueeze(1))[:, 0])
