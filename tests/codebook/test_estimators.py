"""Discrete nodes with large codebooks: they decide, train and report as small ones do."""

from __future__ import annotations

import copy
import sys
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

import dcgraph as dc
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


@pytest.mark.parametrize("estimator", sorted(dc.estimators.ESTIMATORS))
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


@pytest.mark.parametrize("estimator", sorted(dc.estimators.ESTIMATORS))
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
