"""torch.compile(fullgraph=True) of every estimator, as a function, in a node, and with the loss.

In one graph, which is what could fail: the backend traces forward and backward without making code
of them, except in one test.
"""

from __future__ import annotations

import shutil

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

import dcgraph as dc
from dcgraph.estimators import ESTIMATORS
from estimator_cases import CASES, FUNCTIONS, WITH_LOSS, dialled

pytestmark = [
    # torch's own: the compiler warns about its internals.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore::UserWarning:torch"),
]
ALL = [*FUNCTIONS, *WITH_LOSS]
MASK = torch.tensor([True, True, False, True])


@pytest.fixture(autouse=True)
def nothing_compiled_before() -> None:
    """The tests compile the same functions, of which torch keeps eight versions at most."""
    torch.compiler.reset()
    torch.manual_seed(0)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_equal_eager_given_the_noise(name: str, masked: bool) -> None:
    theta, noise, weights = torch.randn(6, 4), dc.gumbel([6, 4]), torch.randn(6, 4)
    tau, beta = torch.tensor(1.5), torch.tensor(0.7)
    theta.requires_grad_()

    def relaxed(theta: Tensor) -> Tensor:
        return ESTIMATORS[name](
            theta, tau=tau, beta=beta, mask=MASK if masked else None, noise=noise, generator=None
        )

    compiled = torch.compile(relaxed, fullgraph=True, backend="aot_eager")
    z, expected = compiled(theta), relaxed(theta)
    torch.testing.assert_close(z, expected)
    found, own = (torch.autograd.grad((one * weights).sum(), theta)[0] for one in (z, expected))
    assert found.isfinite().all()
    if masked:
        assert (found[:, 2] == 0).all()
    if not CASES[name].draws_more:
        torch.testing.assert_close(found, own)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nodes_equal_eager_given_the_noise_while_the_dials_move(name: str) -> None:
    node = dc.Discrete(5, 4, estimator=name, residual="none")
    dials = dc.Dials(tau=2.0, beta=dc.temp_match(2.0, gamma=0.5)).attach(node)
    u, noise = torch.randn(6, 5), dc.gumbel([6, 4])
    compiles = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(node, fullgraph=True, backend=compiles)
    for _ in range(3):
        v, expected = compiled(u, noise=noise), node(u, noise=noise)
        torch.testing.assert_close(v, expected)
        found, own = (
            torch.autograd.grad(one.square().sum(), node.codebook)[0] for one in (v, expected)
        )
        assert found.isfinite().all()
        if not CASES[name].draws_more:
            torch.testing.assert_close(found, own)
        dials.step()
    assert compiles.frame_count == 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_empty_row_gives_zeros_and_no_gradient(name: str) -> None:
    theta = torch.randn(3, 4)
    theta[1] = -torch.inf
    theta.requires_grad_()

    def loss(theta: Tensor) -> Tensor:
        return ESTIMATORS[name](theta, tau=1.5, beta=0.7, mask=None, noise=None, generator=None)

    z = torch.compile(loss, fullgraph=True, backend="aot_eager")(theta)
    (gradient,) = torch.autograd.grad((z * torch.randn(3, 4)).sum(), theta)
    assert (z[1] == 0).all() and (gradient[1] == 0).all() and gradient.isfinite().all()
    torch.testing.assert_close(z[[0, 2]].sum(-1), torch.ones(2))


@pytest.mark.parametrize("name", WITH_LOSS)
def test_surrogate_compiles_in_one_graph(name: str) -> None:
    """The closure too, as often as it is called. What draws nothing equals eager."""
    node = dc.Discrete(5, 3, estimator=name, residual="none")
    dials = dc.Dials(tau=2.0, beta=dc.temp_match(2.0, gamma=0.5)).attach(node)
    u = torch.randn(6, 5)

    def losses(u: Tensor) -> Tensor:
        return dc.surrogate(node, lambda: node(node(u)).square().sum(-1))

    compiles = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(losses, fullgraph=True, backend=compiles)
    parameters = list(node.parameters())
    for step in range(3):
        loss = compiled(u)
        found = torch.autograd.grad(loss.mean(), parameters)
        assert loss.shape == (6,) and all(g.isfinite().all() for g in found)
        if name in ("enumeration", "topk_sparsemax"):
            torch.testing.assert_close(loss, losses(u))
            own = torch.autograd.grad(losses(u).mean(), parameters)
            torch.testing.assert_close(found, own, atol=1e-4, rtol=1e-4)
        elif step == 2:
            assert not torch.equal(loss, compiled(u)), "each call draws"
        dials.step()
    assert compiles.frame_count == 1
    with pytest.raises(ValueError, match="needs the loss"):
        node(u)  # nothing of it is left in the node


@pytest.mark.parametrize("name", ["reinforce", "rebar", "relax"])
def test_the_compiled_gradient_has_no_bias(name: str) -> None:
    torch.manual_seed(0)
    node = dc.Categorical(estimator=name, categories=3)
    dialled(node, tau=0.7, beta=1.0)
    logits, costs = torch.tensor([0.3, -0.2, 0.1]), torch.tensor([1.0, 3.0, -2.0])
    theta = logits.expand(20_000, 3).clone().requires_grad_()

    def losses(theta: Tensor) -> Tensor:
        return dc.surrogate(node, lambda: (node(theta) @ costs).square())

    loss = torch.compile(losses, fullgraph=True, backend="aot_eager")(theta)
    (each,) = torch.autograd.grad(loss.sum(), theta)
    p = logits.softmax(-1)
    expected = p * (costs.square() - p @ costs.square())
    errors = each.std(0) / len(each) ** 0.5
    assert ((each.mean(0) - expected) / errors).abs().max() < 4.5


@pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))),
    reason="torch.compile needs a C++ compiler",
)
def test_with_code_made_of_it() -> None:
    """Through Inductor; nodes of the other kind are in test_compile.py."""
    node = dc.Discrete(5, 4, estimator="rebar", residual="none")
    dialled(node, tau=1.5, beta=0.7)
    u = torch.randn(6, 5)

    def losses(u: Tensor) -> Tensor:
        return dc.surrogate(node, lambda: node(u).square().sum(-1))

    loss = torch.compile(losses, fullgraph=True)(u)
    loss.mean().backward()
    assert loss.shape == (6,) and loss.isfinite().all()
    assert node.codebook.grad is not None and node.codebook.grad.isfinite().all()


@pytest.mark.parametrize("name", ALL)
def test_populations_compile(name: str) -> None:
    population = dc.Population(lambda: dc.Discrete(5, 3, estimator=name), range(2))
    dc.Dials.constant(population, tau=[1.5, 1.0], beta=[0.7, 0.0], alpha=1.0)
    u = torch.randn(6, 5)

    def losses() -> Tensor:
        found: Tensor = population.map(
            lambda model: dc.surrogate(model, lambda: model(u).square().sum(-1))
        )
        return found

    loss = torch.compile(losses, fullgraph=True, backend="aot_eager")()
    gradients = torch.autograd.grad(loss.sum(), [*population.parameters()])
    assert loss.shape == (2, 6) and all(g.isfinite().all() for g in gradients)
