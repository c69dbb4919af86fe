"""A population is R single models: given the same noise, to the last digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dcgraph as dc
from models import Adder


def test_replicas_start_as_their_seeds_say() -> None:
    population = dc.Population(Adder, [3, 5])
    torch.manual_seed(5)
    alone = Adder()
    for name, parameter in population.replica(1).named_parameters():
        assert torch.equal(parameter, alone.get_parameter(name)), name
    assert not torch.equal(population.weights[0], population.weights[1])
    assert population.num_parameters == sum(p.numel() for p in alone.parameters())


def test_building_a_population_leaves_the_global_generator_as_it_was() -> None:
    before = torch.get_rng_state()
    dc.Population(Adder, [3, 5])
    assert torch.equal(torch.get_rng_state(), before)


class Noisy(nn.Module):
    """A chain of two nodes whose noise is handed in."""

    def __init__(self) -> None:
        super().__init__()
        self.node = dc.Discrete(4, 3, residual="none")

    def forward(self, u: Tensor, noise: Tensor) -> Tensor:
        return self.node.logits(self.node(self.node(u, noise=noise[0]), noise=noise[1]))


def test_a_population_step_equals_single_steps_given_the_same_noise() -> None:
    replicas, examples = 3, 5
    u, noise = torch.randn(replicas, examples, 4), dc.gumbel((replicas, 2, examples, 3))
    target = torch.randint(3, (replicas, examples))
    dials = [{"tau": 2.0 + r, "beta": 0.5 * r, "alpha": 1.0} for r in range(replicas)]
    population = dc.Population(Noisy, range(replicas))
    population.set_dials(dials)

    def loss(model: nn.Module, u: Tensor, noise: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(model(u, noise), target, reduction="sum")

    leaf = population.weights.clone().requires_grad_()
    losses = population.map(loss, leaf, u, noise, target, in_dims=(0, 0, 0))
    (gradient,) = torch.autograd.grad(losses.sum(), leaf)
    for r in range(replicas):
        alone = population.replica(r)
        single = loss(alone, u[r], noise[r], target[r])
        single.backward()
        torch.testing.assert_close(losses[r], single)
        own = torch.cat([p.grad.flatten() for p in alone.parameters() if p.grad is not None])
        torch.testing.assert_close(gradient[r][: own.numel()], own)


def test_buffers_are_the_same_for_every_seed() -> None:
    class Projected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.register_buffer("projection", torch.randn(2, 2))

    with pytest.raises(ValueError, match="'projection' differs from seed to seed"):
        dc.Population(Projected, [0, 1])


def test_running_statistics_cannot_be_shared() -> None:
    with pytest.raises(ValueError, match="keeps running statistics"):
        dc.Population(lambda: nn.BatchNorm1d(3), [0])
    with pytest.raises(TypeError, match="float32"):
        dc.Population(lambda: nn.Linear(2, 2).double(), [0])


def test_a_population_has_a_replica() -> None:
    with pytest.raises(ValueError, match="seeds is empty"):
        dc.Population(Adder, [])


@pytest.mark.parametrize("seeds", [range(3, 5), torch.tensor([3, 4]), np.array([3, 4])], ids=str)
def test_seeds_can_be_an_array(seeds: Any) -> None:
    population = dc.Population(Adder, seeds)
    assert population.replicas == 2
    assert torch.equal(population.weights, dc.Population(Adder, [3, 4]).weights)


def test_a_population_says_what_it_is() -> None:
    assert repr(dc.Population(lambda: nn.Linear(30, 50), range(8))) == (
        "Population(8 replicas of Linear, 1,550 parameters each, cpu)"
    )
    assert repr(dc.Population(dc.Categorical, [0])).startswith("Population(1 replica of Cat")


@pytest.mark.parametrize("given", [0, 1, 2, 4])
def test_dials_are_given_for_each_replica(given: int) -> None:
    """One dict would otherwise be that of all replicas."""
    population = dc.Population(dc.Categorical, range(3))
    with pytest.raises(ValueError, match=f"for {given} replicas, but the population has 3; pass"):
        population.set_dials([{"tau": 2.0, "beta": 0.0}] * given)


@pytest.mark.parametrize("large", [0, 1 << 20])
def test_columns_are_the_slices_in_their_order(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcgraph.population._population._LARGE", large)
    population = dc.Population(Adder, range(3))
    slices = list(population.slices(population.weights).values())
    found = torch.zeros_like(population.weights)
    columns = list(population.columns(slices))
    for where, tensor in columns:
        found[:, where] = tensor
    assert torch.equal(found, population.weights)
    assert len(columns) == (1 if large else len(slices))
