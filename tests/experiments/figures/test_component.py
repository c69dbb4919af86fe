"""The discrete node in training and at test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import dcgraph as dc
from dcgraph.experiments.figures import component
from pictures import check_figure, check_margin


def tensors(numbers: dict[str, Any], *names: str) -> list[Tensor]:
    return [torch.tensor(numbers[name]) for name in names]


@pytest.mark.parametrize("seed", range(5))
def test_component_in_training(seed: int) -> None:
    numbers = component.compute(seed)
    u, theta, noise, codebook = tensors(numbers, "u", "theta", "noise", "codebook")
    z, kept, dropped = tensors(numbers["training"], "z", "kept", "dropped")
    expected = dc.gumbel_softmax(theta, numbers["tau"], beta=numbers["beta"], noise=noise)
    torch.testing.assert_close(z, expected)
    assert z.sum().item() == pytest.approx(1, abs=1e-6)
    assert z.min() > 0 and z.max() < 1
    torch.testing.assert_close(dropped, z @ codebook)
    torch.testing.assert_close(kept, z @ codebook + u)


@pytest.mark.parametrize("seed", range(5))
def test_component_at_test(seed: int) -> None:
    numbers = component.compute(seed)
    theta, codebook = tensors(numbers, "theta", "codebook")
    z, v = tensors(numbers["test"], "z", "v")
    chosen = numbers["test"]["chosen"]
    assert chosen == theta.argmax()
    assert torch.equal(z, dc.one_hot(theta.argmax(), component.CATEGORIES))
    assert torch.equal(v, codebook[chosen])


def test_component_is_of_the_node_given() -> None:
    torch.manual_seed(0)
    node, u = dc.Discrete(component.DIM, component.CATEGORIES), torch.randn(component.DIM)
    noise = dc.gumbel([component.CATEGORIES])
    numbers = component.describe(node, u, noise)
    torch.testing.assert_close(torch.tensor(numbers["theta"]), node.logits(u).detach())
    assert numbers["codebook"] == node.codebook.tolist()
    assert numbers["noise"] == noise.tolist()


def test_component_does_not_touch_the_global_generator() -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    component.compute(0)
    assert torch.equal(torch.rand(3), expected)


def test_component_shows_every_seed_without_overflow(tmp_path: Path) -> None:
    for seed in range(4):
        component.draw(component.compute(seed), tmp_path / "picture")
        check_margin(tmp_path / "picture")


def test_the_picture_is_made_of_the_seed_only(tmp_path: Path) -> None:
    check_margin(check_figure("component", component.compute, tmp_path))
