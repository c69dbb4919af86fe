"""Graphs of a batch: padding, graphs without any tree, wrong arguments, vmap."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.func import vmap

import dcgraph as dc
from dcgraph._checks import unchecked
from dcgraph.structures import STRUCTURES, TreeEdges
from trees import (
    NAMES,
)


@pytest.mark.parametrize("name", NAMES)
def test_a_padded_batch_equals_its_graphs_one_by_one(name: str) -> None:
    torch.manual_seed(0)
    structure, longest = STRUCTURES[name], 7
    lengths = torch.tensor([1, 2, 4, 5, 7])
    used = torch.arange(longest) < lengths.unsqueeze(-1)
    theta, noise = torch.randn(5, longest, longest), dc.gumbel((5, longest, longest))
    theta = theta.masked_fill(~used.unsqueeze(-1), 50.0)  # what is there must not matter
    mask = torch.rand(5, longest, longest) < 0.7
    mask |= torch.arange(longest) == 0
    log_z, mu = structure.log_partition(theta, mask, used), structure.marginals(theta, mask, used)
    best, drawn = (
        structure.argmax(theta, mask, used),
        structure.sample(theta, mask, used, noise=noise),
    )
    for b, n in enumerate(lengths.tolist()):
        alone, its_mask, its_noise = (x[b, :n, :n] for x in (theta, mask, noise))
        torch.testing.assert_close(log_z[b], structure.log_partition(alone, its_mask))
        torch.testing.assert_close(mu[b, :n, :n], structure.marginals(alone, its_mask))
        assert torch.equal(best[b, :n], structure.argmax(alone, its_mask))
        assert torch.equal(drawn[b, :n], structure.sample(alone, its_mask, noise=its_noise))
        assert not mu[b, n:].any() and not mu[b, :, n:].any()
        assert (best[b, n:] == -1).all() and (drawn[b, n:] == -1).all()
    sizes = mu.sum((-2, -1)) / (2 if name == "spanning_tree" else 1)
    torch.testing.assert_close(sizes, lengths - 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_padding_can_stand_anywhere(name: str) -> None:
    theta = torch.randn(6, 6)
    used = torch.tensor([True, False, True, True, False, True])
    keep = used.nonzero().squeeze(-1)
    few = theta[keep][:, keep]
    structure = STRUCTURES[name]
    mu = structure.marginals(theta, None, used)
    torch.testing.assert_close(mu[keep][:, keep], structure.marginals(few))
    torch.testing.assert_close(
        structure.log_partition(theta, None, used), structure.log_partition(few)
    )
    parents = structure.argmax(theta, None, used)
    assert parents[keep[1:]].tolist() == keep[structure.argmax(few)[1:]].tolist()
    assert (parents[~used] == -1).all()


def no_way_to_the_root(name: str) -> Tensor:
    """The second of two graphs has nodes 2 and 3 for themselves, or 3 without any parent."""
    mask = torch.ones(2, 4, 4, dtype=torch.bool)
    mask[1, 2:, :2] = False
    mask[1, :2, 2:] = False
    if name == "one_parent":
        mask[1, 3] = False
    return mask


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_without_any_tree(name: str) -> None:
    structure, mask = STRUCTURES[name], no_way_to_the_root(name)
    theta = torch.randn(2, 4, 4, requires_grad=True)
    assert structure.log_partition(theta, mask).isneginf().tolist() == [False, True]
    for function in (structure.marginals, structure.argmax, structure.sample):
        with pytest.raises(ValueError, match=r"graph 1 has no .*mask=.*used="):
            function(theta, mask)
    # Where values are not read, as on a GPU, there is nothing: no edges, no NaN.
    with unchecked():
        mu = structure.marginals(theta, mask)
        assert mu[0].any() and mu.isfinite().all()
        assert not mu[1, 3].any() and (name == "one_parent" or not mu[1].any())
        assert torch.autograd.grad(mu.square().sum(), theta)[0].isfinite().all()
        for parents in (structure.argmax(theta, mask), structure.sample(theta, mask)):
            assert (parents[0, 1:] >= 0).all() and (parents[1] == -1).all()


def test_wrong_arguments() -> None:
    theta = torch.zeros(2, 4, 4)
    for structure in STRUCTURES.values():
        with pytest.raises(ValueError, match="NaN or"):
            structure.marginals(theta * math.nan)
        with pytest.raises(ValueError, match=r"NaN or \+inf"):
            structure.argmax(theta + math.inf)
        with pytest.raises(ValueError, match=r"used has shape \(2,\).*\(2, 4\)"):
            structure.marginals(theta, None, torch.ones(2, dtype=torch.bool))
        with pytest.raises(ValueError, match="mask has shape"):
            structure.marginals(theta, torch.ones(3, 4, 4, dtype=torch.bool))
        with pytest.raises(ValueError, match="no nodes"):
            structure.marginals(torch.zeros(2, 0, 0))
    with pytest.raises(ValueError, match="mean 'arborescence'"):
        TreeEdges("arborescense")


@pytest.mark.parametrize("name", NAMES)
def test_vmap_equals_a_loop(name: str) -> None:
    torch.manual_seed(0)
    structure = STRUCTURES[name]
    theta = torch.randn(3, 4, 6, 6, dtype=torch.float64)
    noise = dc.gumbel(theta.shape, dtype=theta.dtype)
    used = torch.arange(6) < torch.tensor([6, 5, 2, 1]).unsqueeze(-1)
    mask = (torch.rand(4, 6, 6) < 0.7) | (torch.arange(6) == 0)
    for function in (structure.log_partition, structure.marginals, structure.argmax):
        mapped = vmap(function, in_dims=(0, None, None))(theta, mask, used)
        loop = torch.stack([function(one, mask, used) for one in theta])
        torch.testing.assert_close(mapped, loop)
        torch.testing.assert_close(function(theta, mask, used), loop)
        innermost = vmap(vmap(function))(theta, mask.expand(3, 4, 6, 6), used.expand(3, 4, 6))
        torch.testing.assert_close(innermost, loop)

    def drawn(theta: Tensor, noise: Tensor) -> Tensor:
        return structure.sample(theta, mask, used, noise=noise)

    loop = torch.stack([drawn(*one) for one in zip(theta, noise, strict=True)])
    assert torch.equal(vmap(drawn)(theta, noise), loop)


@pytest.mark.parametrize("name", NAMES)
def test_mapped_samples_differ_and_mapped_gradients_are_right(name: str) -> None:
    torch.manual_seed(0)
    structure = STRUCTURES[name]
    theta = torch.zeros(50, 8, 8)
    drawn = vmap(structure.sample, randomness="different")(theta)
    assert len(drawn.unique(dim=0)) > 40
    theta = torch.randn(3, 6, 6, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(6, 6)
    mapped, loop = vmap(structure.marginals)(theta), structure.marginals(theta)
    gradients = [torch.autograd.grad((mu * weights).sum(), theta)[0] for mu in (mapped, loop)]
    torch.testing.assert_close(*gradients)
