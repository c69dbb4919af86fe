"""SparseMAP: the nearest mixture of trees, against another solver and its conditions."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap

import dcgraph as dc
from dcgraph._checks import unchecked
from dcgraph.population import Population
from dcgraph.structures import (
    STRUCTURES,
    TreeEdges,
    _active_set,
    arborescence,
    one_parent,
    spanning_tree,
)
from dcgraph.structures._active_set import Mixtures, mixtures
from trees import NAMES, TREES, enumerate_all, random_mask, without_edges


def read_part(name: str, matrix: Tensor) -> Tensor:
    """The entries that count: the lower triangle where undirected."""
    return matrix.tril(-1) if name == "spanning_tree" else matrix


def by_projected_gradients(name: str, theta: Tensor) -> Tensor:
    """The nearest mixture of all trees, one weight for each, by accelerated projected gradients."""
    every = enumerate_all(name, theta.shape[-1])
    scores = every.scores(theta)
    read = every.read.flatten(1)
    gram = read @ read.T + 1  # changes nothing, for the weights sum to 1
    step = 1 / torch.linalg.eigvalsh(gram)[-1].item()
    weights = ahead = scores.isfinite().double() / scores.isfinite().sum(-1, keepdim=True)
    for k in range(1500):
        better = onto_simplex(ahead + step * (scores - ahead @ gram))
        ahead = better + k / (k + 3) * (better - weights)
        weights = better
    return torch.einsum("...t,tcp->...cp", weights, every.edges)


def onto_simplex(v: Tensor) -> Tensor:
    """The nearest point with entries >= 0 that sum to 1: v - t cut at 0, with t by bisection."""
    low, high = v.amax(-1, keepdim=True) - 1, v.amax(-1, keepdim=True)
    for _ in range(32):
        middle = (low + high) / 2
        above = (v - middle).clamp(min=0).sum(-1, keepdim=True) > 1
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return (v - low).clamp(min=0)


def solution(name: str, theta: Tensor, steps: int = 1000) -> Mixtures:
    """The trees and weights behind sparsemap, of graphs without masks."""
    theta = theta.double()
    if name == "spanning_tree":
        both_ways = theta.tril(-1) + theta.tril(-1).mT
        return mixtures(both_ways, spanning_tree._prim, True, steps)
    return mixtures(theta, arborescence.best_tree, False, steps)


# The solution


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_nearest_mixture_of_all_trees(name: str, n: int, masked: bool) -> None:
    torch.manual_seed(n)
    theta = torch.randn(40, n, n, dtype=torch.float64) * torch.logspace(-1, 1, 40)[:, None, None]
    mask = random_mask(name, 40, n) if masked else None
    if mask is not None:  # an edge of -inf is as good as a masked one
        theta[:5] = without_edges(theta[:5], mask[:5])
    expected = by_projected_gradients(name, theta if mask is None else without_edges(theta, mask))
    mu = STRUCTURES[name].sparsemap(theta, mask)
    torch.testing.assert_close(mu, expected, atol=1e-6, rtol=0)
    single = STRUCTURES[name].sparsemap(theta.float(), mask)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single, expected.float(), atol=2e-6, rtol=0)


def test_one_parent_is_the_sparsemax_of_each_row() -> None:
    torch.manual_seed(0)
    theta = (2 * torch.randn(20, 7, 7, dtype=torch.float64)).requires_grad_()
    mask = (torch.rand(20, 7, 7) < 0.6) | (torch.arange(7) == 0)
    mu = one_parent.sparsemap(theta, mask)
    allowed = mask & ~torch.eye(7, dtype=torch.bool)
    rows = onto_simplex(theta.detach().masked_fill(~allowed, -1e3))
    torch.testing.assert_close(mu[:, 1:], rows[:, 1:], atol=1e-8, rtol=0)
    assert not mu[:, 0].any()
    # On the support the gradient is what is left without its mean.
    weights = torch.randn(7, 7, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((mu * weights).sum(), theta)
    support = mu > 0
    mean = (weights * support).sum(-1, keepdim=True) / support.sum(-1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(gradient, (weights - mean) * support)


@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("name", TREES)
def test_no_tree_is_better_than_the_active_ones(name: str, scale: float) -> None:
    torch.manual_seed(0)
    n = 12
    theta = scale * dc.gumbel((10, n, n)).double()
    found, structure = solution(name, theta), STRUCTURES[name]
    mu = read_part(name, structure.sparsemap(theta))
    residual = theta - mu
    best = dc.one_hot(structure.argmax(residual), n, torch.float64)
    best = read_part(name, best + best.mT if name == "spanning_tree" else best)
    highest = (best * residual).sum((-2, -1))
    active = found.weights > 0
    cells = residual.flatten(-2).unsqueeze(-2).expand(-1, active.shape[-1], -1)
    scores = cells.gather(-1, found.cells).sum(-1)
    torch.testing.assert_close(
        scores[active], highest.unsqueeze(-1).expand_as(scores)[active], atol=2e-9, rtol=0
    )
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(10, dtype=torch.float64))
    # Trees that are affinely independent are at most one more than the dimensions they span.
    edges = n * (n - 1) // 2 if name == "spanning_tree" else (n - 1) ** 2
    assert (active.sum(-1) <= edges).all()
    if scale >= 1:
        assert (active.sum(-1) < 3 * n).all()


@pytest.mark.parametrize("name", TREES)
def test_the_shape_of_a_mixture(name: str) -> None:
    torch.manual_seed(0)
    mu = STRUCTURES[name].sparsemap(2 * torch.randn(20, 9, 9))
    assert ((mu >= 0) & (mu <= 1 + 1e-6)).all()
    assert (mu == 0).float().mean() > 0.5
    if name == "spanning_tree":
        assert torch.equal(mu, mu.mT)
        torch.testing.assert_close(mu.sum((-2, -1)), torch.full((20,), 16.0))
    else:
        torch.testing.assert_close(mu.sum(-1)[:, 1:], torch.ones(20, 8))
        assert not mu[:, 0].any()


@pytest.mark.parametrize("name", NAMES)
def test_a_tree_that_is_far_better_than_all_others_is_the_solution(name: str) -> None:
    torch.manual_seed(0)
    structure, node = STRUCTURES[name], TreeEdges(name).eval()
    for scale in (1e3, 1e6, 1e9):
        theta = scale * torch.randn(10, 8, 8, dtype=torch.float64)
        assert torch.equal(structure.sparsemap(theta), node(theta))
        assert torch.equal(structure.sparsemap(theta.float()), node(theta.float()))


@pytest.mark.parametrize("name", TREES)
def test_an_edge_that_is_forced_may_have_any_score(name: str) -> None:
    torch.manual_seed(0)
    theta = torch.randn(10, 6, 6, dtype=torch.float64)
    theta[:, 5] = theta[:, :, 5] = -1e7  # node 5 must be joined by one of them
    theta[:, 5, 2] += 10.0
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[5] = mask[:, 5] = False
    mu, others = STRUCTURES[name].sparsemap(theta), STRUCTURES[name].sparsemap(theta[:, :5, :5])
    torch.testing.assert_close(mu[:, :5, :5], others, atol=1e-6, rtol=0)
    torch.testing.assert_close(mu[:, 5, 2], torch.ones(10, dtype=torch.float64))


@pytest.mark.parametrize("n", [2, 3, 5, 10])
@pytest.mark.parametrize("name", NAMES)
def test_equal_scores_share_alike(name: str, n: int) -> None:
    # By symmetry: every edge of a spanning tree as often as the others, and so every parent of a
    # node; in arborescences too, where one child of the root on average is the least there can be.
    mu = STRUCTURES[name].sparsemap(torch.full((2, n, n), 3.0, dtype=torch.float64))
    even = torch.ones(n, n, dtype=torch.float64).fill_diagonal_(0.0)
    even = even * 2 / n if name == "spanning_tree" else even / (n - 1)
    if name != "spanning_tree":
        even[0] = 0.0
    torch.testing.assert_close(mu, even.expand(2, n, n), atol=1e-6, rtol=0)


@given(st.integers(0, 10**6), st.sampled_from([2, 3, 4]), st.sampled_from(TREES))
def test_whole_scores_with_many_ties(seed: int, n: int, name: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randint(-1, 2, (5, n, n), generator=generator).double() / 2
    mu = read_part(name, STRUCTURES[name].sparsemap(theta))
    every = enumerate_all(name, n)
    gap = every.scores(theta - mu).amax(-1) - ((theta - mu) * mu).sum((-2, -1))
    assert (gap < 2e-9).all()


# Gradients


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name: str) -> None:
    torch.manual_seed(0)
    theta = (0.7 * torch.randn(2, 4, 4, dtype=torch.float64)).requires_grad_()
    used = torch.arange(4) < torch.tensor([[4], [3]])
    mask = (torch.rand(2, 4, 4) < 0.8) | (torch.arange(4) == 0)

    def function(x: Tensor) -> Tensor:
        return STRUCTURES[name].sparsemap(x, mask, used)

    mu = function(theta)
    assert ((mu > 0.01) & (mu < 0.99)).any(-1).any(-1).all()
    assert torch.autograd.gradcheck(function, theta)
    assert torch.autograd.gradgradcheck(function, theta)
    # The Jacobian is a projection: symmetric, and twice is once.
    parts = torch.autograd.functional.jacobian(lambda x: read_part(name, function(x))[0], theta)
    jacobian = parts[:, :, 0].reshape(16, 16)
    torch.testing.assert_close(jacobian, jacobian.T)
    torch.testing.assert_close(jacobian @ jacobian, jacobian)
    assert jacobian.trace() > 0.5


def test_the_gradient_has_a_part_along_every_active_edge_only() -> None:
    torch.manual_seed(0)
    theta = (2 * torch.randn(8, 9, 9)).requires_grad_()
    mu = arborescence.sparsemap(theta)
    (gradient,) = torch.autograd.grad((mu * torch.randn(9, 9)).sum(), theta)
    assert gradient.any() and not gradient[mu == 0].any()
    torch.testing.assert_close(gradient.sum(-1), torch.zeros(8, 9), atol=1e-5, rtol=0)


# Fewer steps


@pytest.mark.parametrize("name", TREES)
def test_fewer_steps_are_mixtures_that_come_nearer(name: str) -> None:
    torch.manual_seed(0)
    theta = 0.5 * torch.randn(10, 9, 9, dtype=torch.float64)
    structure = STRUCTURES[name]
    assert torch.equal(structure.sparsemap(theta, steps=1), TreeEdges(name).eval()(theta))
    distances = []
    for steps in (1, 3, 10, 100):
        mu = read_part(name, structure.sparsemap(theta, steps=steps))
        torch.testing.assert_close(mu.sum((-2, -1)), torch.full((10,), 8.0, dtype=torch.float64))
        assert (mu >= 0).all()
        distances.append((mu - read_part(name, theta)).square().sum((-2, -1)))
        assert ((solution(name, theta, steps).weights > 0).sum(-1) <= steps).all()
    assert all((b < a).all() for a, b in pairwise(distances))


@pytest.mark.parametrize("name", TREES)
def test_no_step_leads_away(name: str) -> None:
    torch.manual_seed(0)
    theta = 0.3 * torch.randn(10, 6, 6, dtype=torch.float64)
    points = [
        read_part(name, STRUCTURES[name].sparsemap(theta, steps=steps)) for steps in range(1, 40)
    ]
    distances = [(mu - read_part(name, theta)).square().sum((-2, -1)) for mu in points]
    assert all((b <= a + 1e-12).all() for a, b in pairwise(distances))


# Batches, masks, padding, maps


@pytest.mark.parametrize("name", NAMES)
def test_a_padded_batch_equals_its_graphs_one_by_one(name: str) -> None:
    torch.manual_seed(0)
    structure, longest = STRUCTURES[name], 7
    lengths = torch.tensor([1, 2, 4, 5, 7])
    used = torch.arange(longest) < lengths.unsqueeze(-1)
    theta = torch.randn(5, longest, longest, dtype=torch.float64)
    theta = theta.masked_fill(~used.unsqueeze(-1), 50.0)  # what is there must not matter
    mask = (torch.rand(5, longest, longest) < 0.7) | (torch.arange(longest) == 0)
    mu = structure.sparsemap(theta, mask, used)
    for b, n in enumerate(lengths.tolist()):
        alone = structure.sparsemap(theta[b, :n, :n], mask[b, :n, :n])
        torch.testing.assert_close(mu[b, :n, :n], alone)
        assert not mu[b, n:].any() and not mu[b, :, n:].any()
    assert not mu[~(mask | mask.mT if name == "spanning_tree" else mask)].any()
    other = torch.tensor([True, False, True, True, False, True, True])  # padding anywhere
    keep = other.nonzero().squeeze(-1)
    few = structure.sparsemap(theta[4][keep][:, keep])
    torch.testing.assert_close(structure.sparsemap(theta[4], None, other)[keep][:, keep], few)


@pytest.mark.parametrize("name", TREES)
def test_batches_of_any_shape(name: str) -> None:
    theta = torch.randn(2, 3, 5, 5)
    mu = STRUCTURES[name].sparsemap(theta)
    one = torch.stack([STRUCTURES[name].sparsemap(one) for one in theta.flatten(0, 1)])
    torch.testing.assert_close(mu.flatten(0, 1), one)
    assert STRUCTURES[name].sparsemap(theta[:0]).shape == (0, 3, 5, 5)
    half = theta.bfloat16()
    mu = STRUCTURES[name].sparsemap(half)
    assert mu.dtype == torch.bfloat16
    assert torch.equal(mu, STRUCTURES[name].sparsemap(half.float()).bfloat16())


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_without_any_tree(name: str) -> None:
    structure = STRUCTURES[name]
    mask = torch.ones(2, 4, 4, dtype=torch.bool)
    mask[1, 2:, :2] = mask[1, :2, 2:] = False
    mask[1, 3] = mask[1, 3] & (name != "one_parent")
    theta = torch.randn(2, 4, 4, requires_grad=True)
    with pytest.raises(ValueError, match=r"graph 1 has no .*mask=.*used="):
        structure.sparsemap(theta, mask)
    with unchecked():
        mu = structure.sparsemap(theta, mask)
        assert mu[0].any() and mu.isfinite().all()
        assert not mu[1, 3].any() and (name == "one_parent" or not mu[1].any())
        assert torch.autograd.grad(mu.square().sum(), theta)[0].isfinite().all()
    with pytest.raises(ValueError, match="NaN or"):
        structure.sparsemap(theta * math.nan)


@pytest.mark.parametrize("name", ["arborescence", "spanning_tree"])
def test_scores_that_are_not_numbers_end_at_once_and_show(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that does not check values (as on a GPU) sees a diverged model in the loss."""
    theta = torch.randn(3, 6, 6, generator=torch.Generator().manual_seed(0))
    expected = STRUCTURES[name].sparsemap(theta)
    theta[1, 3, 2] = torch.nan
    theta.requires_grad_()
    calls: list[int] = []
    found = _active_set._move

    def counted(state: _active_set._State) -> tuple[_active_set._State, Tensor]:
        calls.append(len(state.graph))
        return found(state)

    monkeypatch.setattr(_active_set, "_move", counted)
    with unchecked():
        mu = STRUCTURES[name].sparsemap(theta)
        (gradient,) = torch.autograd.grad(mu.square().sum(), theta)
    assert len(calls) < 50, "of up to 1,000 steps"
    assert mu[1].isnan().any() and gradient[1].isnan().any()
    torch.testing.assert_close(mu[[0, 2]], expected[[0, 2]])
    assert gradient[[0, 2]].isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_no_step_at_all_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="steps=0, but the first"):
        STRUCTURES[name].sparsemap(torch.zeros(3, 3), steps=0)


@pytest.mark.parametrize("name", NAMES)
def test_vmap_equals_a_loop(name: str) -> None:
    torch.manual_seed(0)
    structure = STRUCTURES[name]
    theta = torch.randn(3, 4, 6, 6, dtype=torch.float64, requires_grad=True)
    used = torch.arange(6) < torch.tensor([6, 5, 2, 1]).unsqueeze(-1)
    mask = (torch.rand(4, 6, 6) < 0.7) | (torch.arange(6) == 0)
    weights = torch.randn(6, 6, dtype=torch.float64)

    def loss(theta: Tensor, mask: Tensor, used: Tensor) -> Tensor:
        return (structure.sparsemap(theta, mask, used) * weights).sum()

    mapped = vmap(structure.sparsemap, in_dims=(0, None, None))(theta, mask, used)
    loop = torch.stack([structure.sparsemap(one, mask, used) for one in theta])
    torch.testing.assert_close(mapped, loop)
    gradients = [torch.autograd.grad((mu * weights).sum(), theta)[0] for mu in (mapped, loop)]
    torch.testing.assert_close(*gradients)
    inner = vmap(torch.func.grad(loss), in_dims=(0, None, None))(theta.detach(), mask, used)
    torch.testing.assert_close(inner, gradients[1])
    innermost = vmap(vmap(structure.sparsemap))(
        theta, mask.expand(3, 4, 6, 6), used.expand(3, 4, 6)
    )
    torch.testing.assert_close(innermost, loop)


# The node


@pytest.mark.parametrize("name", NAMES)
def test_a_node_relaxes_by_sparsemap(name: str) -> None:
    torch.manual_seed(0)
    structure, node = STRUCTURES[name], TreeEdges(name, estimator="sparsemap")
    dc.Dials(tau=2.0, beta=0.5).attach(node)
    theta, noise = torch.randn(3, 6, 6), dc.gumbel((3, 6, 6))
    used = torch.arange(6) < torch.tensor([[6], [5], [2]])
    mask = (torch.rand(3, 6, 6) < 0.7) | (torch.arange(6) == 0)
    relaxed = node(theta, mask=mask, rows=used, noise=noise)
    expected = structure.sparsemap((theta + 0.5 * noise) / 2.0, mask, used)
    torch.testing.assert_close(relaxed, expected)
    other = TreeEdges(name).eval()
    assert torch.equal(node.eval()(theta, mask=mask), other(theta, mask=mask))
    assert "estimator='sparsemap'" in repr(node) and "estimator='marginals'" in repr(other)


def test_a_node_that_chooses_a_tree_takes_only_its_own_estimators() -> None:
    words = "estimator of TreeEdges='straight_through' is unknown; there are: marginals, sparsemap"
    with pytest.raises(ValueError, match=words):
        TreeEdges("arborescence", estimator="straight_through")
    with pytest.raises(ValueError, match="estimator='sparsemap' is unknown"):
        dc.Categorical(estimator="sparsemap")
    node = TreeEdges("arborescence")
    node.estimator = "gumbel_softmax"
    with pytest.raises(ValueError, match="there are: marginals, sparsemap"):
        node(torch.zeros(3, 3))


@pytest.mark.parametrize("name", NAMES)
def test_a_population_equals_single_nodes(name: str) -> None:
    population = Population(lambda: TreeEdges(name, estimator="sparsemap"), [0, 1], "cpu")
    dc.Dials.constant(population, tau=[1.0, 2.0], beta=[0.5, 1.0])
    theta, noise = torch.randn(3, 6, 6), dc.gumbel((2, 3, 6, 6))
    mapped = population.map(lambda model, noise: model(theta, noise=noise), noise, in_dims=0)
    for r in range(2):
        torch.testing.assert_close(mapped[r], population.replica(r)(theta, noise=noise[r]))


@pytest.mark.parametrize("name", TREES)
def test_it_learns_a_tree(name: str) -> None:
    torch.manual_seed(0)
    node = TreeEdges(name, estimator="sparsemap")
    theta = torch.zeros(5, 5, requires_grad=True)
    target = dc.one_hot(torch.tensor([-1, 0, 1, 1, 3]), 5)
    target = target + target.mT if name == "spanning_tree" else target
    optimizer = torch.optim.Adam([theta], lr=0.1)
    for _ in range(150):
        (node(theta) - target).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert torch.equal(node.eval()(theta), target)
