"""Samples of trees follow their distribution."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import dcgraph as dc
from dcgraph.structures import STRUCTURES
from statistics_of_fit import chi_square_p
from trees import (
    NAMES,
    TREES,
    enumerate_all,
    random_mask,
    without_edges,
)


def counts_of(name: str, parents: Tensor) -> Tensor:
    every = enumerate_all(name, parents.shape[-1]).parents
    same = (parents.unsqueeze(-2) == every).all(-1)
    assert same.any(-1).all(), "not a structure"
    return torch.bincount(same.long().argmax(-1), minlength=len(every))


def fit_of_samples(name: str, theta: Tensor, parents: Tensor) -> float:
    probabilities = enumerate_all(name, theta.shape[-1]).scores(theta).softmax(-1)
    counts = counts_of(name, parents)
    possible = probabilities > 0
    assert possible.sum() > 1 and not counts[~possible].any()
    return chi_square_p(counts[possible], probabilities[possible])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("n", [3, 4, 5])
@pytest.mark.parametrize("name", NAMES)
def test_samples_follow_the_distribution(name: str, n: int, masked: bool) -> None:
    torch.manual_seed(n)
    theta = torch.randn(n, n) * (0.5 if n == 5 else 1.0)
    mask = random_mask(name, 1, n)[0] if masked else None
    parents = STRUCTURES[name].sample(theta.expand(20_000, n, n), mask)
    allowed = theta if mask is None else without_edges(theta, mask)
    assert fit_of_samples(name, allowed, parents) > 1e-4


@pytest.mark.parametrize("name", TREES)
def test_the_test_of_samples_can_fail(name: str) -> None:
    # The best tree of perturbed scores is a random tree, but not of this distribution.
    torch.manual_seed(0)
    theta = torch.randn(4, 4)
    many = theta.expand(20_000, 4, 4)
    structure = STRUCTURES[name]
    assert fit_of_samples(name, theta, structure.argmax(many + dc.gumbel(many.shape))) < 1e-4
    assert fit_of_samples(name, theta, structure.sample(many, noise="reversed")) < 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_edges_of_samples_of_larger_graphs_have_the_marginals(name: str) -> None:
    torch.manual_seed(0)
    n, draws = 9, 20_000
    theta = torch.randn(n, n)
    parents = STRUCTURES[name].sample(theta.expand(draws, n, n))
    edges = dc.one_hot(parents, n)
    if name == "spanning_tree":
        edges = edges + edges.mT
    expected = STRUCTURES[name].marginals(theta.double())
    deviation = (expected * (1 - expected) / draws).sqrt().clamp(min=1e-9)
    assert ((edges.mean(0) - expected) / deviation).abs().max() < 5


@pytest.mark.parametrize("name", TREES)
def test_sampling_takes_no_longer_where_nodes_prefer_each_other(name: str) -> None:
    # A walk among nodes 1 to 3 would take e^60 steps to the root. Which of them hangs on the root
    # is a matter of their small weights to it.
    torch.manual_seed(0)
    theta = torch.zeros(4, 4)
    theta[1:, 0] = torch.tensor([-60.0, -61.0, -62.0])
    parents = STRUCTURES[name].sample(theta.expand(20_000, 4, 4))
    assert fit_of_samples(name, theta, parents) > 1e-4


def test_samples_repeat_with_the_generator_and_with_the_noise() -> None:
    theta, noise = torch.randn(8, 6, 6), dc.gumbel((8, 6, 6))
    for structure in STRUCTURES.values():
        draws = [
            structure.sample(theta, generator=torch.Generator().manual_seed(3)) for _ in range(2)
        ]
        assert torch.equal(*draws)
        assert torch.equal(
            structure.sample(theta, noise=noise), structure.sample(theta, noise=noise)
        )
