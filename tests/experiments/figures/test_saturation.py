"""Gradients of models whose probabilities saturate."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from dcgraph.experiments.figures import saturation
from pictures import check_figure


def test_saturation_without_noise_is_gradient_descent() -> None:
    numbers = saturation.compute(betas=[0.0], steps=40, seeds=1)
    first, second = saturation.THETA
    expected = {}
    for step in range(1, 41):
        gradient = 1 / (1 + math.exp(first - second))
        first, second = first - 0.01 * -gradient, second - 0.01 * gradient
        expected[step] = first, second, 1 / (1 + math.exp(second - first))
    (curve,) = numbers["curves"]
    names = ("theta_1", "theta_2", "probability")
    for i, step in enumerate(numbers["steps"]):
        seen = [curve[name]["median"][i] for name in names]
        assert seen == pytest.approx(expected[step], abs=1e-3)


def test_saturation_shows_the_point_of_the_paper() -> None:
    numbers = saturation.compute(betas=[0.0, 8.0], steps=1000, seeds=16)
    calm, noisy = numbers["curves"]
    early = next(i for i, step in enumerate(numbers["steps"]) if step >= 60)
    # Early, a small beta is ahead and has less variance ...
    assert calm["theta_1"]["median"][early] > noisy["theta_1"]["high"][early]
    assert noisy["theta_1"]["low"][early] < noisy["theta_1"]["high"][early]
    # ... later the probabilities saturate, and only a large one still has gradients.
    assert calm["probability"]["median"][-1] > 0.9
    assert noisy["gradient"]["low"][-1] > 3 * calm["gradient"]["median"][-1]
    assert noisy["theta_1"]["low"][-1] > 2 * calm["theta_1"]["median"][-1]


def test_gradients_are_averaged_over_the_last_steps() -> None:
    values = torch.rand(7, 2, 3, dtype=torch.float64)
    expected = torch.stack([values[max(0, t - 2) : t + 1].mean(0) for t in range(7)])
    torch.testing.assert_close(saturation._trailing_mean(values, 3), expected)


def test_training_does_not_change_the_number_of_threads() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        saturation.compute(steps=20, seeds=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_picture_is_made_of_the_seed_only(tmp_path: Path) -> None:
    check_figure("saturation", lambda seed: saturation.compute(seed, steps=30, seeds=3), tmp_path)
