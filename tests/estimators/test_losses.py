"""Estimators that need the loss, against the sum over all choices: for one, in chains, in long
chains by a recursion."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.estimators import LOSS_ESTIMATORS, ControlVariate
from estimator_cases import (
    CASES,
    WITH_LOSS,
    Markov,
    dialled,
    exact_expectation,
    small_loss,
    sparsemax_of,
    z_score,
)

UNBIASED = [name for name in WITH_LOSS if CASES[name].unbiased]
SAMPLED = [name for name in UNBIASED if name != "enumeration"]
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "reinforce": [{"samples": 2}, {"samples": 4}],
    "rebar": [{"eta": 1.0}, {"eta": 0.5}, {"eta": -2.0}],
    "relax": [{}],
}
"""Options to try; other estimators are tried without any."""

EACH = [(name, options) for name in SAMPLED for options in SETTINGS.get(name, [{}])]


def problem(length: int, categories: int = 3) -> tuple[Tensor, Tensor]:
    """Logits of the first choice, and what each choice says of the next one, in float64."""
    seeded = torch.Generator().manual_seed(length)
    start = torch.randn(categories, generator=seeded, dtype=torch.float64)
    shape = (length - 1, categories, categories)
    steps = torch.randn(shape, generator=seeded, dtype=torch.float64)
    return start.requires_grad_(), steps.requires_grad_()


def chain(name: str, length: int, tau: float, beta: float, categories: int = 3) -> Markov:
    """With control variates, if there are any, that say something."""
    model = Markov(name, length, categories)
    dialled(model, tau, beta)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for module in model.modules():
            if isinstance(module, ControlVariate):
                for parameter in module.parameters():
                    nn.init.normal_(parameter)
    return model


def estimated(
    model: Markov, start: Tensor, steps: Tensor, examples: int, **options: float
) -> tuple[Tensor, Tensor]:
    """The losses of many equal examples, and the gradients of each, [examples, parameters]."""
    copies = [
        t.detach().to(torch.float32 if examples > 1 else t.dtype).expand(examples, *t.shape)
        for t in (start, steps)
    ]
    leaves = [copy.clone().requires_grad_() for copy in copies]
    losses = dc.surrogate(model, lambda: small_loss(model(*leaves)), **options)
    gradients = torch.autograd.grad(losses.sum(), leaves, materialize_grads=True)
    return losses.detach(), torch.cat([g.flatten(1) for g in gradients], 1)


def of(node: nn.Module, theta: Tensor, loss: Callable[[Tensor], Tensor]) -> Callable[[], Tensor]:
    """The closure of one call."""
    return lambda: loss(node(theta))


def gradient_of(expectation: Tensor, *leaves: Tensor) -> Tensor:
    gradients = torch.autograd.grad(expectation, leaves, materialize_grads=True)
    return torch.cat([g.flatten() for g in gradients])


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_enumeration_is_exact(length: int, beta: float) -> None:
    start, steps = problem(length)
    expected = exact_expectation(start, steps, lambda theta: (theta / beta).softmax(-1))
    losses, gradient = estimated(chain("enumeration", length, 1.0, beta), start, steps, 1)
    torch.testing.assert_close(losses[0], expected)
    torch.testing.assert_close(gradient[0], gradient_of(expected, start, steps))


def by_topk(support: int) -> Callable[[Tensor], Tensor]:
    def probabilities(theta: Tensor) -> Tensor:
        """The sparsemax of the largest, by bisection, with its Jacobian on the support."""
        top, order = theta.topk(support)
        inside = sparsemax_of(top.detach()) > 1e-12
        t = (top[inside].sum() - 1) / inside.sum()
        return torch.zeros_like(theta).scatter(0, order, torch.where(inside, top - t, 0.0))

    return probabilities


@pytest.mark.parametrize("support", [1, 2, 3, 7])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_topk_sparsemax_is_exact_for_its_probabilities(length: int, support: int) -> None:
    start, steps = problem(length)
    tau = 1.7
    own = by_topk(min(support, 3))
    expected = exact_expectation(start, steps, lambda theta: own(theta / tau))
    model = chain("topk_sparsemax", length, tau, 0.3)
    losses, gradient = estimated(model, start, steps, 1, support=support)
    torch.testing.assert_close(losses[0], expected)
    torch.testing.assert_close(gradient[0], gradient_of(expected, start, steps))


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize(("tau", "beta"), [(1.0, 1.0), (0.5, 1.5)])
@pytest.mark.parametrize(("name", "options"), EACH)
def test_no_bias_in_small_chains(
    name: str, options: dict[str, float], tau: float, beta: float, length: int
) -> None:
    torch.manual_seed(1)
    start, steps = problem(length)
    expected = exact_expectation(start, steps, lambda theta: (theta / beta).softmax(-1))
    model = chain(name, length, tau, beta)
    losses, each = estimated(model, start, steps, 20_000, **options)
    assert z_score(losses.unsqueeze(-1), expected.detach()) < 4.5
    assert z_score(each, gradient_of(expected, start, steps)) < 4.5


@pytest.mark.parametrize("wrong", ["straight_through", "zgr", "gumbel_rao"])
def test_the_test_of_bias_can_fail(wrong: str) -> None:
    """The biased ones are found out by the same numbers, in a chain of two."""
    torch.manual_seed(1)
    start, steps = problem(2)
    expected = exact_expectation(start, steps, lambda theta: theta.softmax(-1))
    losses, each = estimated(chain(wrong, 2, 1.0, 1.0), start, steps, 20_000)
    assert z_score(losses.unsqueeze(-1), expected.detach()) < 4.5
    assert z_score(each, gradient_of(expected, start, steps)) > 10


def recursion(start: Tensor, steps: Tensor, values: Tensor) -> Tensor:
    """E of the last choice's value, in a number of operations that grows only with the length."""
    p = start.softmax(-1)
    for step in steps:
        p = p @ step.softmax(-1)
    return p @ values


@pytest.mark.parametrize(("name", "options"), EACH)
def test_no_bias_in_long_chains(name: str, options: dict[str, float]) -> None:
    torch.manual_seed(2)
    start, steps = problem(12)
    values = torch.tensor([0.0, 1.0, -2.0])
    expected = recursion(start, steps, values.double())
    model = chain(name, 12, 1.0, 1.0)
    leaves = [
        t.detach().float().expand(3000, *t.shape).clone().requires_grad_() for t in (start, steps)
    ]
    losses = dc.surrogate(model, lambda: model(*leaves)[-1] @ values, **options)
    each = torch.cat([g.flatten(1) for g in torch.autograd.grad(losses.sum(), leaves)], 1)
    assert z_score(losses.detach().unsqueeze(-1), expected.detach()) < 4.5
    assert z_score(each, gradient_of(expected, start, steps)) < 4.5


@pytest.mark.parametrize("name", SAMPLED)
def test_several_choices_of_an_example_and_one_node_called_twice(name: str) -> None:
    """[examples, positions, K] and a module that is used again: no bias either."""
    torch.manual_seed(0)
    node = dc.Categorical(estimator=name, categories=2)
    dialled(node)
    base = torch.tensor([[0.3, -0.4], [0.9, 0.1]], dtype=torch.float64, requires_grad=True)
    table = torch.tensor([[1.0, -2.0], [0.5, 3.0]])

    def loss(theta: Tensor) -> Tensor:
        pair = node(theta)  # [examples, 2, 2]
        both = (pair[:, 0] @ table.to(theta.dtype) * pair[:, 1]).sum(-1)
        after = node(torch.stack([both, -both], -1))
        return (both + after[:, 0]).square()

    exact = dc.Categorical(estimator="enumeration")
    dialled(exact)
    theta = base.detach().float().expand(20_000, 2, 2).clone().requires_grad_()
    losses = dc.surrogate(node, lambda: loss(theta))
    (each,) = torch.autograd.grad(losses.sum(), theta)
    sampling, node = node, exact
    (expected,) = torch.autograd.grad(dc.surrogate(exact, lambda: loss(base[None])).sum(), base)
    assert sampling is not node and z_score(each, expected) < 4.5


@pytest.mark.parametrize("name", UNBIASED)
def test_no_bias_where_each_run_draws_gates_of_its_own(name: str) -> None:
    """Those of DropRes; dropout is drawn anew as well."""
    torch.manual_seed(0)

    def chain(estimator: str) -> tuple[dc.Discrete, dc.Discrete]:
        one, two = (dc.Discrete(3, 3, estimator=estimator, gate="example") for _ in range(2))
        for node, own in zip((one, two), codebooks, strict=True):
            dialled(node, alpha=0.5)
            node.codebook.data = own
        return one, two

    def gradient(nodes: tuple[dc.Discrete, dc.Discrete], u: Tensor) -> Tensor:
        one, two = nodes
        rows = u.clone().requires_grad_()
        losses = dc.surrogate(nn.ModuleList(nodes), lambda: (two(one(rows)) @ weights).sin())
        return torch.autograd.grad(losses.sum(), rows)[0]

    codebooks = torch.randn(2, 3, 3)
    start, weights = torch.randn(1, 3), torch.tensor([1.0, -0.7, 0.4])
    exact, expected = chain("enumeration"), torch.zeros(3)
    for gates in product((0.0, 1.0), repeat=2):
        for node, alpha in zip(exact, gates, strict=True):
            assert node.dropres is not None
            node.dropres.alpha = torch.tensor(alpha)
        expected += gradient(exact, start)[0] / 4
    each = gradient(chain(name), start.expand(20_000, 3))
    assert z_score(each, expected) < 4.5


def test_parameters_after_and_beside_the_choices_have_the_gradient_of_the_mean() -> None:
    """It needs no score function, and each estimator gives it."""
    theta, offset = torch.tensor([0.3, -0.2, 0.1]), torch.tensor(0.7)
    costs = torch.tensor([1.0, 2.0, -1.0])
    expected = float(theta.softmax(-1) @ (2 * (costs + offset)))

    def after(own: Tensor, node: nn.Module, rows: Tensor) -> Callable[[], Tensor]:
        return of(node, rows, lambda z: (z @ costs + own).square())

    for name in (name for name in WITH_LOSS if name != "topk_sparsemax"):  # which has its own p
        torch.manual_seed(0)
        node = dc.Categorical(estimator=name, categories=3)
        dialled(node)
        rows, own = theta.expand(20_000, 3), offset.expand(20_000).clone().requires_grad_()
        losses = dc.surrogate(node, after(own, node, rows))
        (each,) = torch.autograd.grad(losses.sum(), own)
        assert abs(each.mean() - expected) < 4.5 * max(float(each.std()) / 20_000**0.5, 1e-6), name


def test_surrogate_of_estimators_that_need_no_loss_is_the_closure() -> None:
    calls: list[int] = []
    node = dc.Categorical()
    dialled(node)
    noise, theta = dc.gumbel([5, 3]), torch.randn(5, 3)

    def closure() -> Tensor:
        calls.append(1)
        return node(theta, noise=noise) @ torch.arange(3.0)

    assert torch.equal(dc.surrogate(node, closure), closure()) and len(calls) == 2


@pytest.mark.parametrize(
    ("name", "options", "runs"),
    [
        ("reinforce", {}, 4),
        ("reinforce", {"samples": 7}, 7),
        ("rebar", {}, 3),
        ("relax", {}, 3),
        ("topk_sparsemax", {}, 2**2),
        ("topk_sparsemax", {"support": 3}, 3**2),
        ("enumeration", {}, 3**2),
    ],
)
def test_how_often_the_network_runs(name: str, options: dict[str, float], runs: int) -> None:
    assert {one[0] for one in self_check()} == set(LOSS_ESTIMATORS)
    model = chain(name, 2, 1.0, 1.0)
    start, steps = torch.zeros(4, 3), torch.zeros(4, 1, 3, 3)
    calls: list[int] = []

    def closure() -> Tensor:
        calls.append(1)
        return small_loss(model(start, steps))

    dc.surrogate(model, closure, **options)
    assert len(calls) == runs


def self_check() -> list[tuple[Any, ...]]:
    """The parameters of the test above, which are to name every estimator."""
    (mark,) = test_how_often_the_network_runs.pytestmark  # type: ignore[attr-defined]
    return list(mark.args[1])


def test_what_has_no_weight_is_not_gone_through() -> None:
    model = chain("enumeration", 2, 1.0, 0.0)
    start, steps = torch.tensor([[0.0, 1.0, 0.0]]).expand(4, 3), torch.randn(4, 1, 3, 3)
    calls: list[int] = []

    def closure() -> Tensor:
        calls.append(1)
        return small_loss(model(start, steps))

    loss = dc.surrogate(model, closure)
    chosen = dc.one_hot(steps[:, 0, 1].argmax(-1), 3)
    torch.testing.assert_close(loss, small_loss([dc.one_hot(torch.full((4,), 1), 3), chosen]))
    assert len(calls) < 9


@pytest.mark.parametrize("name", ["enumeration", "topk_sparsemax"])
def test_a_sum_does_not_ask_for_the_loss_of_a_masked_category(name: str) -> None:
    """Which may be infinite, and infinity times a weight of 0 is NaN."""
    node = dc.Categorical(estimator=name)
    dialled(node)
    theta = torch.randn(3, 3).requires_grad_()
    mask = torch.tensor([[True, False, True], [False, True, True], [True, True, False]])
    costs = torch.where(mask, torch.randn(3, 3), torch.inf)
    losses = dc.surrogate(
        node, lambda: (node(theta, mask=mask) * costs).nan_to_num(0.0, posinf=torch.inf).sum(-1)
    )
    (gradient,) = torch.autograd.grad(losses.sum(), theta)
    assert losses.isfinite().all() and gradient.isfinite().all()


@pytest.mark.parametrize("name", WITH_LOSS)
def test_a_model_takes_its_first_steps_without_noise(name: str) -> None:
    """TempMatch starts at beta = 0: backward() works, and the gradient is finite."""
    layer, node = nn.Linear(4, 3), dc.Categorical(estimator=name, categories=3)
    model = nn.Sequential(layer, node)
    dials = dc.Dials(tau=2.0, beta=dc.temp_match(2.0, gamma=0.5)).attach(model)
    for step in range(3):
        model.zero_grad()
        x = torch.randn(5, 4)
        loss = dc.surrogate(model, of(model, x, lambda z: z @ torch.arange(3.0)))
        loss.mean().backward()
        assert layer.weight.grad is not None and layer.weight.grad.isfinite().all()
        if step == 0 and name != "topk_sparsemax":
            assert layer.weight.grad.abs().max() < 1e-6
        dials.step()
    assert layer.weight.grad is not None and layer.weight.grad.abs().max() > 1e-4


def test_relax_learns_what_the_loss_is_by_least_squares() -> None:
    torch.manual_seed(0)
    node = dc.Categorical(estimator="relax", categories=4)
    dialled(node, tau=0.3)
    control = node.control
    assert control is not None
    theta, costs = torch.tensor([0.2, -0.1, 0.4, 0.0]), torch.tensor([3.0, -1.0, 5.0, 2.0])
    optimizer = torch.optim.Adam(control.parameters(), lr=0.02)

    def variance() -> float:
        leaf = theta.expand(2000, 4).clone().requires_grad_()
        losses = dc.surrogate(node, lambda: (node(leaf) @ costs).sin() * 3)
        (each,) = torch.autograd.grad(losses.sum(), leaf)
        return float(each.var(0).sum())

    before = variance()
    for _ in range(150):
        optimizer.zero_grad()
        losses = dc.surrogate(node, of(node, theta.expand(128, 4), lambda z: (z @ costs).sin() * 3))
        losses.mean().backward()
        optimizer.step()
    assert variance() < 0.7 * before
    assert control.eta != 1 and (control.outer.weight != 0).any()


def test_relax_starts_as_rebar() -> None:
    found: list[Tensor] = []
    for name in ("relax", "rebar"):
        theta = torch.tensor([0.2, -0.1, 0.4]).expand(50, 3).clone().requires_grad_()
        node = dc.Categorical(estimator=name, categories=3)
        dialled(node, tau=0.5)
        torch.manual_seed(4)
        losses = dc.surrogate(node, of(node, theta, lambda z: z.square() @ torch.arange(3.0)))
        found += torch.autograd.grad(losses.sum(), theta)
    torch.testing.assert_close(*found)


def test_variance_falls_as_the_estimators_say() -> None:
    """More samples, and a control variate, for the same problem; the sum has none."""
    spread: dict[str, float] = {}
    for label, name, options in (
        ("2 samples", "reinforce", {"samples": 2}),
        ("8 samples", "reinforce", {"samples": 8}),
        ("none", "rebar", {"eta": 0.0}),
        ("rebar", "rebar", {"eta": 1.0}),
        ("sum", "enumeration", {}),
    ):
        torch.manual_seed(0)
        node = dc.Categorical(estimator=name)
        dialled(node, tau=0.5)
        theta = torch.tensor([0.2, -0.1, 0.4]).expand(4000, 3).clone().requires_grad_()
        closure = of(node, theta, lambda z: (z @ torch.arange(3.0) + 1).square())
        losses = dc.surrogate(node, closure, **options)
        (each,) = torch.autograd.grad(losses.sum(), theta)
        spread[label] = float(each.var(0).sum())
    assert spread["8 samples"] < 0.5 * spread["2 samples"]
    assert spread["rebar"] < 0.5 * spread["none"]
    assert spread["sum"] < 1e-9


THETA = torch.zeros(4, 3)


def ask(
    name: str, closure: Callable[[dc.Categorical], Tensor] | None = None, **options: Any
) -> Any:
    node = dc.Categorical(estimator=name, categories=3)
    dialled(node)
    own = closure or (lambda node: node(THETA) @ torch.arange(3.0))
    return dc.surrogate(node, lambda: own(node), **options)


@pytest.mark.parametrize("name", WITH_LOSS)
def test_errors_of_what_the_closure_returns(name: str) -> None:
    with pytest.raises(ValueError, match=r"loss has shape \(\), but one number for each .* reduc"):
        ask(name, lambda node: (node(THETA) @ torch.arange(3.0)).mean())
    with pytest.raises(ValueError, match=r"loss has shape \(4, 3\), but one number for each"):
        ask(name, lambda node: node(THETA))
    with pytest.raises(ValueError, match=r"choices of shape \(2,.*but there are 4 examples"):
        ask(name, lambda node: node(THETA.view(2, 2, 3)[:, :1]).sum() * torch.ones(4))
    with pytest.raises(ValueError, match=r"choices of shape \(\), but there are 4 examples"):
        ask(name, lambda node: node(THETA[0]).sum() * torch.ones(4))


@pytest.mark.parametrize("name", WITH_LOSS)
def test_unknown_options_are_errors(name: str) -> None:
    known = LOSS_ESTIMATORS[name].options
    words = f"here are: {', '.join(known)}" if known else "it has none"
    with pytest.raises(TypeError, match=f"'{name}' has no option 'sample'; .*{words}"):
        ask(name, sample=3)


def test_options_out_of_range_are_errors() -> None:
    with pytest.raises(ValueError, match="samples=1, but a baseline that leaves one out needs"):
        ask("reinforce", samples=1)
    for support in (0, -1, True):
        with pytest.raises(ValueError, match=f"support={support}, but a sum has terms"):
            ask("topk_sparsemax", support=support)


@pytest.mark.parametrize("name", ["enumeration", "topk_sparsemax"])
def test_sums_that_are_too_long_are_errors(name: str) -> None:
    def two(node: dc.Categorical) -> Tensor:
        return (node(THETA) + node(THETA)) @ torch.arange(3.0)

    runs = 9 if name == "enumeration" else 4
    assert ask(name, two, limit=runs).shape == (4,)
    with pytest.raises(ValueError, match=f"over 2 choices needs {runs} runs .* limit={runs - 1}"):
        ask(name, two, limit=runs - 1)
    many = torch.zeros(4, 30, 3)
    with pytest.raises(ValueError, match=r"30 choices needs [\d,]+ runs .* limit=4,096; use"):
        ask(name, lambda node: node(many).sum((1, 2)))


def test_a_network_that_calls_its_nodes_another_time_when_relaxed_is_an_error() -> None:
    def uneven(node: dc.Categorical) -> Tensor:
        z = node(THETA + torch.tensor([0.3, 0.0, -0.2]))
        if not ((z == 0) | (z == 1)).all():
            z = z + node(THETA)
        return z @ torch.arange(3.0)

    for name in ("rebar", "relax"):
        with pytest.raises(ValueError, match=r"calls its nodes more often .*'reinforce'"):
            ask(name, uneven)
