"""vmap with dials per replica, autocast, and what a graph does with an empty row."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

import dcgraph as dc
from models import Adder

TAUS, ALPHAS = (1.0, 4.0, 8.0), (0.0, 0.5, 1.0)


def population() -> list[Adder]:
    models = [Adder() for _ in TAUS]
    for model, tau, alpha in zip(models, TAUS, ALPHAS, strict=True):
        dc.Dials(tau=tau, beta=tau / 2, alpha=alpha).attach(model)
    return models


def forward_all(models: list[Adder], a: Tensor, b: Tensor) -> Tensor:
    parameters, buffers = stack_module_state(list(models))
    base = copy.deepcopy(models[0]).to("meta")

    def one(p: dict[str, Tensor], d: dict[str, Tensor]) -> Tensor:
        result: Tensor = functional_call(base, (p, d), (a, b))
        return result

    return vmap(one, randomness="different")(parameters, buffers)


def test_vmap_maps_nodes_with_their_own_dials() -> None:
    models = population()
    logits, noise = torch.randn(3, 7, 5), dc.gumbel([3, 7, 5])
    _, buffers = stack_module_state(list(models))
    tau, beta = (buffers[f"symbol.categorical.{name}"] for name in ("tau", "beta"))

    def one(row: Tensor, tau: Tensor, beta: Tensor, noise: Tensor) -> Tensor:
        return dc.gumbel_softmax(row, tau, beta=beta, noise=noise)

    mapped = vmap(one)(logits, tau, beta, noise)
    for i, t in enumerate(TAUS):
        alone = dc.gumbel_softmax(logits[i], t, beta=t / 2, noise=noise[i])
        torch.testing.assert_close(mapped[i], alone)


@pytest.mark.parametrize("training", [True, False])
def test_vmapped_population_trains_and_evaluates(training: bool) -> None:
    models = [model.train(training) for model in population()]
    a, b = torch.randn(7, 6), torch.randn(7, 6)
    out = forward_all(models, a, b)
    assert out.shape == (3, 7, 5)
    if not training:
        for i, model in enumerate(models):
            torch.testing.assert_close(out[i], model(a, b))
    out.sum().backward()
    assert all(p.grad is None for p in models[0].parameters())


def test_vmap_draws_differ_between_replicas() -> None:
    same = torch.zeros(4, 1000)
    z = vmap(lambda row: dc.gumbel_softmax(row), randomness="different")(same)
    assert len({tuple(row.tolist()) for row in z}) == 4
    gates = vmap(
        lambda v: dc.drop_residual(v, torch.ones(1000, 1), 0.5, gate="example"),
        randomness="different",
    )(torch.zeros(4, 1000, 1))
    assert len({tuple(row.flatten().tolist()) for row in gates}) == 4


def test_empty_row_in_a_graph_gives_zeros_and_no_gradient() -> None:
    theta = torch.randn(2, 3, 4)
    theta[0, 1] = -torch.inf

    def loss(theta: Tensor, hard: bool) -> tuple[Tensor, Tensor]:
        z = dc.gumbel_softmax(theta, 2.0, hard=hard)
        return (z * torch.arange(4.0)).sum(), z

    for hard in (False, True):
        gradient, z = vmap(
            torch.func.grad(lambda t, h=hard: loss(t, h), has_aux=True), randomness="different"
        )(theta)
        assert (z[0, 1] == 0).all() and (gradient[0, 1] == 0).all()
        assert z.isfinite().all() and gradient.isfinite().all()
        torch.testing.assert_close(z.sum(-1), torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]]))
    index = vmap(lambda t: dc.sample(t), randomness="different")(theta)
    assert index[0, 1] == -1 and (index[1] >= 0).all()
    assert vmap(lambda t: dc.entropy(t))(theta)[0, 1] == 0
    node = dc.Discrete(4, 4).eval()
    mask = torch.ones(2, 3, 4, dtype=torch.bool)
    mask[0, 1] = False
    v = vmap(lambda u, m: node(u, mask=m))(torch.randn(2, 3, 4), mask)
    assert (v[0, 1] == 0).all() and (v[1] != 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_keeps_noise_and_softmax_in_float32(dtype: torch.dtype) -> None:
    model = Adder()
    dc.Dials(tau=8.0, beta=2.0, alpha=0.5).attach(model)
    a, b = torch.randn(7, 6), torch.randn(7, 6)
    with torch.autocast("cpu", dtype):
        out = model(a, b)
        half = torch.randn(4, 1000).to(dtype)
        noise = dc.gumbel([4, 1000])
        z = dc.gumbel_softmax(half, 3.0, noise=noise)
    assert out.dtype == dtype and z.dtype == dtype
    out.float().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    # Rounded once: what is at a tie may go the other way, where a processor adds in another order.
    rounded = ((half.float() + noise) / 3.0).softmax(-1).to(dtype)
    assert float((z == rounded).double().mean()) > 0.999
    torch.testing.assert_close(z, rounded, rtol=torch.finfo(dtype).eps, atol=0.0)
