"""Estimators against the packages of their authors: entmax, reinmax, vector-quantize-pytorch.

They are oracles: nothing here says what is right except what they compute, value and gradient.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import dcgraph as dc
from dcgraph.estimators import ESTIMATORS, Estimator


def values(shape: tuple[int, ...], seed: int, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64)


def both_passes(f: Any, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """What f returns, and the gradient of x when g arrives there."""
    leaf = x.detach().requires_grad_()
    y = f(leaf)
    return y.detach(), torch.autograd.grad(y, leaf, g)[0]


def relaxed(estimator: Estimator, tau: float, beta: float, **given: Tensor) -> Any:
    """The estimator as a function of the logits."""
    wanted: dict[str, Any] = {"mask": None, "noise": None, "generator": None, **given}
    return lambda x: estimator(x, tau=tau, beta=beta, **wanted)


@pytest.fixture(params=["sparsemax", "entmax15"])
def sparse(request: pytest.FixtureRequest) -> tuple[Estimator, Any]:
    """An estimator of that name, and the function of the package."""
    package = pytest.importorskip("entmax")
    return ESTIMATORS[request.param], getattr(package, request.param)


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("shape", [(2,), (50, 7), (3, 4, 300)])
@pytest.mark.parametrize("tau", [0.3, 1.0, 4.0])
def test_sparse_mixtures_are_those_of_entmax(
    sparse: tuple[Estimator, Any], shape: tuple[int, ...], scale: float, tau: float
) -> None:
    """From all categories in the support to one."""
    estimator, oracle = sparse
    theta, g = values(shape, 1, scale), values(shape, 2)
    found = both_passes(relaxed(estimator, tau, 0.0), theta, g)
    expected = both_passes(lambda x: oracle(x / tau), theta, g)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_sparse_mixtures_with_noise_are_those_of_perturbed_logits(
    sparse: tuple[Estimator, Any],
) -> None:
    estimator, oracle = sparse
    theta, noise, g = (values((20, 9), seed) for seed in range(3))
    found = both_passes(relaxed(estimator, 2.0, 0.5, noise=noise), theta, g)
    expected = both_passes(lambda x: oracle((x + 0.5 * noise) / 2.0), theta, g)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_sparse_mixtures_without_masked_categories_are_those_of_the_others(
    sparse: tuple[Estimator, Any],
) -> None:
    estimator, oracle = sparse
    theta, g = values((30, 8), 3, 2.0), values((30, 8), 4)
    mask = torch.tensor([True, False, True, True, False, True, True, False])
    z, gradient = both_passes(relaxed(estimator, 1.0, 0.0, mask=mask), theta, g)
    expected = both_passes(oracle, theta[:, mask], g[:, mask])
    torch.testing.assert_close((z[:, mask], gradient[:, mask]), expected, rtol=1e-9, atol=1e-9)
    assert not z[:, ~mask].any() and not gradient[:, ~mask].any()


def test_sparse_mixtures_of_many_categories_in_float32(sparse: tuple[Estimator, Any]) -> None:
    """As large as entities are many; also logits that are all alike far above 0."""
    estimator, oracle = sparse
    theta = values((4, 40_000), 5).float()
    theta[1] += 100.0
    theta[2] = 7.0
    g = values((4, 40_000), 6).float()
    found = both_passes(relaxed(estimator, 0.5, 0.0), theta, g)
    exact = both_passes(lambda x: oracle(x / 0.5), theta.double(), g.double())
    for own, other in zip(found, exact, strict=True):
        torch.testing.assert_close(own.double(), other, rtol=0.0, atol=3e-4)


def by_reinmax(
    theta: Tensor, tau: float, index: Tensor, g: Tensor, monkeypatch: pytest.MonkeyPatch
) -> tuple[Tensor, Tensor]:
    """Value and gradient of the package, which draws what it is given."""
    reinmax = pytest.importorskip("reinmax").reinmax

    def drawn(p: Tensor, **_: Any) -> Tensor:
        assert p.shape == (index.numel(), theta.shape[-1])
        return index.reshape(-1, 1)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "multinomial", drawn)
        return both_passes(lambda x: reinmax(x, tau)[0], theta, g)


@pytest.mark.parametrize("tau", [1.0, 1.3, 5.0])
@pytest.mark.parametrize("shape", [(400, 2), (5, 60, 11)])
def test_reinmax_is_that_of_the_package(
    shape: tuple[int, ...], tau: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package has no factor 1 / tau."""
    theta, g = values(shape, 7, 2.0), values(shape, 8)
    noise = dc.gumbel(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    z, gradient = both_passes(relaxed(ESTIMATORS["reinmax"], tau, 1.0, noise=noise), theta, g)
    index = (theta + noise).argmax(-1)
    assert len(index.unique()) == shape[-1]
    one_hot, expected = by_reinmax(theta, tau, index, g, monkeypatch)
    assert torch.equal(z, one_hot)
    torch.testing.assert_close(gradient, expected / tau, rtol=1e-9, atol=1e-9)


def test_zgr_is_reinmax_at_temperature_one(monkeypatch: pytest.MonkeyPatch) -> None:
    theta, g, noise = (values((300, 6), seed) for seed in (10, 11, 12))
    found = both_passes(relaxed(ESTIMATORS["zgr"], 1.0, 1.0, noise=noise), theta, g)
    expected = by_reinmax(theta, 1.0, (theta + noise).argmax(-1), g, monkeypatch)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dim", [2, 3, 64])
def test_the_rotation_is_that_of_vector_quantize_pytorch(dim: int) -> None:
    name = "vector_quantize_pytorch"
    rotate_to = pytest.importorskip(f"{name}.{name}").rotate_to
    query, row, g = values((100, dim), 13), values((100, dim), 14, 3.0), values((100, dim), 15)
    value, gradient = both_passes(lambda x: dc.codebook.rotate(x, row), query, g)
    rotated, expected = both_passes(lambda x: rotate_to(x, row), query, g)
    torch.testing.assert_close(value, rotated, rtol=1e-9, atol=1e-9)
    assert torch.equal(value, row)
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-9)
