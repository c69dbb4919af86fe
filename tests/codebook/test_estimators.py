"""Discrete nodes with large codebooks: they decide, train and report as small ones do."""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap
from torch.utils._python_dispatch import TorchDispatchMode

import dcgraph as dc
from dcgraph._arguments import EstimatorName
from dcgraph._checks import unchecked
from dcgraph.codebook import _blocks as blocks
from dcgraph.codebook import _moved as moved
from dcgraph.codebook import _problem as problem
from dcgraph.codebook._estimators import CODEBOOK_ESTIMATORS
from dcgraph.nodes import Decode
from statistics_of_fit import chi_square_p

node_module = sys.modules["dcgraph.nodes"]  # dcgraph.nodes is a function


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "LARGE", 1)


def tied_node(estimator: str) -> dc.Discrete:
    torch.manual_seed(0)
    node = dc.Discrete(6, 40, estimator=estimator, residual="none")
    dc.Dials(tau=2.0, beta=0.7).attach(node)
    return node


def test_a_node_is_large_where_its_logits_are_products_with_a_large_codebook() -> None:
    assert dc.Discrete(2, 4096).is_large
    assert dc.Discrete(2, 4096, codebook="given").is_large
    assert not dc.Discrete(2, 4095).is_large
    assert not dc.Discrete(2, 4096, codebook="separate").is_large


DRAW_MORE = ("gumbel_rao", "reinmax_rao", "reinmax_cv")
"""Their gradients have noise beside the one that chooses."""
OF_LOGITS = sorted(set(CODEBOOK_ESTIMATORS) & set(dc.estimators.ESTIMATORS))
EXACT = [name for name in OF_LOGITS if name not in DRAW_MORE]


def test_all_with_hard_choices_are_there() -> None:
    mixtures = {"sparsemax", "entmax15"}
    of_several_runs = {"rebar", "relax", "topk_sparsemax", "enumeration"}
    others = set(get_args(EstimatorName)) - set(CODEBOOK_ESTIMATORS)
    assert others == mixtures | of_several_runs


@pytest.mark.parametrize("estimator", EXACT)
@pytest.mark.parametrize("masked", [False, True])
def test_large_nodes_train_as_small_ones(
    estimator: str, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tied_node(estimator)
    u, noise = torch.randn(9, 6, requires_grad=True), dc.gumbel([9, 40])
    mask = torch.arange(40) % 3 > 0 if masked else None
    weights = torch.randn(9, 6)
    found = []
    for large in (False, True):
        monkeypatch.setattr(node_module, "LARGE", 1 if large else 10**9)
        assert node.is_large == large
        v = node(u, noise=noise, mask=mask)
        found.append((v, *torch.autograd.grad((v * weights).sum(), (u, node.codebook))))
    for small_one, large_one in zip(*found, strict=True):
        torch.testing.assert_close(large_one, small_one)


@pytest.mark.usefixtures("everything_is_large")
def test_a_given_codebook_and_the_residual() -> None:
    node = dc.Discrete(6, 40, codebook="given")
    dc.Dials(tau=2.0, beta=0.0, alpha=0.0).attach(node)
    u, codebook = torch.randn(9, 6), torch.randn(40, 6)
    v = (u @ codebook.T / 2.0).softmax(-1) @ codebook
    torch.testing.assert_close(node(u, codebook=codebook), v + u)
    torch.testing.assert_close(node(u, 2 * u, codebook), v + 2 * u)
    with pytest.raises(ValueError, match="width 5, but the node was built with dim=6"):
        node(torch.randn(9, 5), codebook=codebook)


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("decode", ["argmax", "sample"])
def test_eval_returns_exact_rows_of_the_right_distribution(decode: Decode) -> None:
    torch.manual_seed(0)
    node = dc.Discrete(6, 5, decode=decode).eval()
    dc.Dials(tau=8.0, beta=8.0, alpha=0.0).attach(node)  # must not matter
    u = torch.randn(6) / 2
    with dc.trace(node) as steps, torch.autocast("cpu", torch.bfloat16):
        v = node(u.expand(20_000, 6))
    (step,) = steps
    assert torch.equal(v, node.codebook[step.index])
    theta = node.logits(u).detach()
    p = theta.softmax(-1)
    torch.testing.assert_close(step.probability, p[step.index], rtol=1e-2, atol=1e-3)
    if decode == "argmax":
        assert (step.index == theta.argmax()).all()
    else:  # bfloat16 rounds theta a little
        assert chi_square_p(step.index[:3000].bincount(minlength=5), p) > 1e-4


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("estimator", DRAW_MORE)
def test_large_nodes_train_as_small_ones_in_the_mean(
    estimator: str, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    node = dc.Discrete(3, 5, estimator=estimator, residual="none")
    dc.Dials(tau=1.5, beta=0.8).attach(node)
    start, weights = torch.randn(3), torch.randn(3)
    mask = torch.tensor([True, True, False, True, True]) if masked else None
    found = []
    for large in (False, True):
        monkeypatch.setattr(node_module, "LARGE", 1 if large else 10**9)
        u = start.expand(4000, 3).clone().requires_grad_()
        (node(u, mask=mask) @ weights).tanh().sum().backward()
        assert u.grad is not None
        found.append((u.grad.mean(0), u.grad.var(0) / 4000))
    (small, of_small), (large_one, of_large) = found
    assert ((small - large_one) / (of_small + of_large).sqrt()).abs().max() < 4.5


@pytest.mark.usefixtures("everything_is_large")
def test_rotation_turns_the_gradient() -> None:
    node = tied_node("rotation")
    u, weights = torch.randn(9, 6, requires_grad=True), torch.randn(9, 6)
    noise = dc.gumbel([9, 40])
    v = node(u, noise=noise)
    index = (node.logits(u) + 0.7 * noise).argmax(-1)
    assert torch.equal(v, node.codebook[index])
    (v * weights).sum().backward()
    assert u.grad is not None and node.codebook.grad is not None
    for row in range(9):
        q, c = u[row].detach(), node.codebook[index[row]].detach()
        qh, ch = q / q.norm(), c / c.norm()
        r = (qh + ch) / (qh + ch).norm()
        turn = torch.eye(6) - 2 * torch.outer(r, r) + 2 * torch.outer(ch, qh)
        torch.testing.assert_close(turn @ qh, ch)
        expected = c.norm() / q.norm() * turn.T @ weights[row]
        torch.testing.assert_close(u.grad[row], expected)
    rows = torch.zeros(40, 6).index_add(0, index, weights)
    torch.testing.assert_close(node.codebook.grad, rows)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_a_rotation_without_a_direction_gives_no_gradient(dtype: torch.dtype) -> None:
    """As after a ReLU that let nothing pass."""
    query = torch.zeros(2, 3, dtype=dtype, requires_grad=True)
    row = torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]], dtype=dtype)
    value = dc.codebook.rotate(query, row)
    assert torch.equal(value, row)
    (gradient,) = torch.autograd.grad(value.sum(), query)
    assert (gradient == 0).all()


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("estimator", sorted(CODEBOOK_ESTIMATORS))
def test_no_rows_at_all(estimator: str) -> None:
    node = tied_node(estimator)
    u = torch.zeros(0, 6, requires_grad=True)
    dc.surrogate(node, lambda: node(u).sum(-1)).sum().backward()
    assert u.grad is not None and u.grad.shape == (0, 6)
    assert node.codebook.grad is not None and (node.codebook.grad == 0).all()


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("estimator", sorted(CODEBOOK_ESTIMATORS))
def test_a_row_without_a_category_is_zeros_where_values_are_not_checked(estimator: str) -> None:
    node = tied_node(estimator)
    u = torch.randn(3, 6, requires_grad=True)
    mask = torch.ones(3, 40, dtype=torch.bool)
    mask[1] = False
    with unchecked():
        losses = dc.surrogate(node, lambda: node(u, mask=mask).square().sum(-1))
        losses.sum().backward()
    assert losses.isfinite().all() and losses[1] == 0
    for gradient in (u.grad, node.codebook.grad):
        assert gradient is not None and gradient.isfinite().all()
    assert u.grad is not None and (u.grad[1] == 0).all()


def test_rotation_is_for_small_nodes_too() -> None:
    assert dc.Discrete(6, 3, estimator="rotation").is_large


@pytest.mark.usefixtures("everything_is_large")
def test_a_large_node_with_a_score_function() -> None:
    torch.manual_seed(0)
    node = dc.Discrete(3, 5, estimator="reinforce", residual="none")
    dc.Dials(tau=1.0, beta=1.5).attach(node)
    start, weights = torch.randn(3), torch.randn(3)
    u = start.expand(20_000, 3).clone().requires_grad_()
    dc.surrogate(node, lambda: (node(u) @ weights).tanh()).sum().backward()
    assert u.grad is not None and node.codebook.grad is not None
    of_codebook = node.codebook.grad / 20_000
    own = start.clone().requires_grad_()
    p = (node.logits(own) / 1.5).softmax(-1)
    loss = (p * (node.codebook @ weights).tanh()).sum()
    exact, exact_codebook = torch.autograd.grad(loss, (own, node.codebook))
    z = (u.grad.mean(0) - exact) / (u.grad.std(0) / 20_000**0.5)
    assert z.abs().max() < 4.5
    torch.testing.assert_close(of_codebook, exact_codebook, rtol=0.05, atol=0.02)


class Largest(TorchDispatchMode):
    """The number of entries of the largest tensor that is made."""

    entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for value in found if isinstance(found, tuple | list) else (found,):
            if isinstance(value, Tensor):
                self.entries = max(self.entries, value.untyped_storage().nbytes() // 4)
        return found


@pytest.mark.parametrize("estimator", sorted(CODEBOOK_ESTIMATORS))
def test_no_matrix_of_logits(estimator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(blocks._KEPT, "cpu", 1 << 12)
    monkeypatch.setitem(blocks._ENTRIES, "cpu", 1 << 12)
    monkeypatch.setitem(moved._ENTRIES, "cpu", 1 << 12)
    monkeypatch.setitem(problem._SMALL, "cpu", 1 << 12)
    node = dc.Discrete(2, 4096, estimator=estimator, residual="none")
    dc.Dials(tau=1.0, beta=1.0).attach(node)
    u = torch.randn(16, 2, requires_grad=True)
    with Largest() as largest:  # type: ignore[no-untyped-call]
        dc.surrogate(node, lambda: node(u).square().sum(-1)).sum().backward()
    assert u.grad is not None and node.codebook.grad is not None
    assert largest.entries <= 1 << 14  # the codebook has 2^13, the matrix would have 2^16


@pytest.mark.parametrize("estimator", sorted(set(OF_LOGITS) | {"rotation"}))
def test_vmap_over_codebooks_and_shared_ones(estimator: str) -> None:
    torch.manual_seed(0)
    relax = CODEBOOK_ESTIMATORS[estimator]
    u, codebooks = torch.randn(3, 4, 2), torch.randn(3, 300, 2)

    def loss(query: Tensor, codebook: Tensor) -> Tensor:
        value, _ = relax(query, codebook, tau=1.0, beta=0.0, mask=None, noise=None, generator=None)
        return value.square().sum()

    gradient = vmap(torch.func.grad(loss, (0, 1)), randomness="different")(u, codebooks)
    alone = [torch.func.grad(loss, (0, 1))(*pair) for pair in zip(u, codebooks, strict=True)]
    for side, own in enumerate(gradient):
        expected = torch.stack([pair[side] for pair in alone])
        assert own.isfinite().all()
        if estimator not in DRAW_MORE:
            torch.testing.assert_close(own, expected)


@pytest.mark.parametrize("estimator", EXACT)
@pytest.mark.parametrize("masked", [False, True])
def test_probe_and_trace_read_the_same(
    estimator: str, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tied_node(estimator)
    u, noise = torch.randn(9, 6, requires_grad=True), dc.gumbel([9, 40])
    mask = torch.rand(9, 40) > 0.5 if masked else None

    def loss() -> Tensor:
        result: Tensor = node(u, noise=noise, mask=mask).square().sum()
        return result

    reports, traces = [], []
    for large in (False, True):
        monkeypatch.setattr(node_module, "LARGE", 1 if large else 10**9)
        reports.append(dc.probe(node, loss))
        with dc.trace(node) as steps:
            loss()
        traces.append(steps[0])
    small, large_one = (report.readings[0] for report in reports)
    assert large_one.logit_gradient is None and large_one.by_category is None
    expected = replace(small, logit_gradient=None, by_category=None)
    for name, value in vars(expected).items():
        if isinstance(value, float):
            value = pytest.approx(value, rel=1e-4, abs=1e-6)
        assert getattr(large_one, name) == value, name
    assert reports[1].hard_loss == pytest.approx(reports[0].hard_loss)
    assert torch.equal(traces[0].index, traces[1].index)
    torch.testing.assert_close(traces[0].probability, traces[1].probability)


@pytest.mark.usefixtures("everything_is_large")
def test_the_probe_reads_weights_of_drawn_noise() -> None:
    torch.manual_seed(0)
    node = dc.Discrete(6, 40, residual="none")
    dc.Dials(tau=0.3, beta=0.5).attach(node)
    u = torch.randn(500, 6)
    report = dc.probe(node, lambda: node(u).square().sum())
    (reading,) = report.readings
    z = dc.gumbel_softmax(node.logits(u), 0.3, beta=0.5)  # another draw from the same distribution
    hard = node.logits(u).argmax(-1)
    gap = 1 - z.gather(-1, hard.unsqueeze(-1)).mean().item()
    assert reading.gap == pytest.approx(gap, abs=0.05)
    saturated = (z.amax(-1) > 0.99).float().mean().item()
    assert reading.saturated == pytest.approx(saturated, abs=0.1)


@pytest.mark.usefixtures("everything_is_large")
def test_a_population_of_large_nodes() -> None:
    torch.manual_seed(0)
    models = [dc.Discrete(6, 40, residual="none") for _ in range(3)]
    for model, tau in zip(models, (1.0, 2.0, 4.0), strict=True):
        dc.Dials(tau=tau, beta=0.0).attach(model)
    parameters, buffers = stack_module_state(list(models))
    base = copy.deepcopy(models[0]).to("meta")
    u = torch.randn(9, 6)

    def one(p: dict[str, Tensor], b: dict[str, Tensor]) -> Tensor:
        result: Tensor = functional_call(base, (p, b), (u,))
        return result

    v = vmap(one, randomness="different")(parameters, buffers)
    for own, model in zip(v, models, strict=True):
        torch.testing.assert_close(own, model(u))
    v.square().sum().backward()
    models[1](u).square().sum().backward()
    gradient = parameters["codebook"].grad
    assert gradient is not None
    torch.testing.assert_close(gradient[1], models[1].codebook.grad)
