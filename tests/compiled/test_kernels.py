"""The Triton kernels against their torch twin, in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import dcgraph as dc
from statistics_of_fit import kolmogorov_p

kernel = pytest.importorskip("dcgraph.kernels.relaxation", reason="the kernels need Triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def seed(value: int) -> Tensor:
    return torch.tensor([value], device=DEVICE)


def inputs(rows: int, k: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(rows * k)
    theta = torch.randn(rows, k, device=DEVICE)
    tau, beta = torch.rand(rows, device=DEVICE) + 0.5, torch.rand(rows, device=DEVICE)
    return theta.requires_grad_(), tau, beta


def twin(theta: Tensor, tau: Tensor, beta: Tensor, key: Tensor) -> Tensor:
    noise = kernel.drawn_noise(key, *theta.shape)
    return dc.gumbel_softmax(theta, tau.unsqueeze(-1), beta=beta.unsqueeze(-1), noise=noise)


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).detach().norm() / expected.detach().norm())


# One partial tile; whole tiles; whole tiles and a rest; more than the backward pass holds.
@pytest.mark.parametrize("shape", [(3, 10), (1, 8192), (2, 5001), (1, 50_001)])
def test_kernel_equals_its_twin(shape: tuple[int, int]) -> None:
    theta, tau, beta = inputs(*shape)
    z = kernel.relax(theta, tau, beta, seed(7), shape[0])
    expected = twin(theta, tau, beta, seed(7))
    weights = torch.randn(shape, device=DEVICE)
    found, wanted = (torch.autograd.grad((v * weights).sum(), theta)[0] for v in (z, expected))
    assert relative_error(z, expected) < 1e-5
    assert relative_error(found, wanted) < 1e-5


def test_second_derivative() -> None:
    theta, tau, beta = inputs(2, 12)
    weights = torch.randn(2, 12, device=DEVICE)

    def curvature(z: Tensor) -> Tensor:
        (first,) = torch.autograd.grad((z.square() * weights).sum(), theta, create_graph=True)
        return torch.autograd.grad(first.square().sum(), theta)[0]

    found = curvature(kernel.relax(theta, tau, beta, seed(7), 2))
    assert relative_error(found, curvature(twin(theta, tau, beta, seed(7)))) < 1e-4


def test_empty_rows_and_masked_entries_are_zeros() -> None:
    theta, tau, beta = inputs(3, 40)
    with torch.no_grad():
        theta[1] = -torch.inf
        theta[2, 5:] = -torch.inf
    z = kernel.relax(theta, tau, beta, seed(7), 3)
    (gradient,) = torch.autograd.grad((z * torch.randn_like(z)).sum(), theta)
    assert (z[1] == 0).all() and (z[2, 5:] == 0).all()
    torch.testing.assert_close(z.sum(-1), torch.tensor([1.0, 0.0, 1.0], device=DEVICE))
    assert gradient.isfinite().all() and (gradient[1] == 0).all() and (gradient[2, 5:] == 0).all()


def test_noise_is_gumbel_with_a_fine_tail() -> None:
    noise = kernel.drawn_noise(seed(11), 8, 32_768).flatten().cpu()
    assert noise.isfinite().all()
    uniform = torch.exp(-torch.exp(-noise.double()))
    assert kolmogorov_p(uniform) > 1e-4
    # Neighbours in a group of four share bits below 2^-23: nothing of it may be seen.
    neighbours = uniform.view(8, -1, 4, 1024) - 0.5
    correlation = (neighbours[:, :, :-1] * neighbours[:, :, 1:]).mean() * 12
    assert abs(correlation) < 5 / neighbours[:, :, 1:].numel() ** 0.5
    assert len(noise.topk(2000).values.unique()) > 1990
    assert not torch.equal(noise, kernel.drawn_noise(seed(12), 8, 32_768).flatten().cpu())


@pytest.mark.parametrize("randomness", ["different", "same"])
def test_vmap(randomness: str) -> None:
    theta, tau, beta = inputs(6, 20)
    stacked = theta.detach().view(3, 2, 20)
    dials = tau.view(3, 2), beta.view(3, 2)
    keys = seed(7).expand(3, 1) if randomness == "different" else seed(7)
    in_dims = (0, 0, 0, 0 if randomness == "different" else None)

    def loss(t: Tensor, tau: Tensor, beta: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        z = kernel.relax(t, tau, beta, key, 2)
        return z.square().sum(), z

    gradient, z = torch.vmap(torch.func.grad(loss, has_aux=True), in_dims)(stacked, *dials, keys)
    for i in range(3):
        if randomness == "same":
            alone = kernel.relax(stacked[i], dials[0][i], dials[1][i], seed(7), 2)
            torch.testing.assert_close(z[i], alone)
    if randomness == "different":
        together = kernel.relax(theta, tau, beta, seed(7), 6)
        torch.testing.assert_close(z.view(6, 20), together)
        (expected,) = torch.autograd.grad(together.square().sum(), theta)
        torch.testing.assert_close(gradient.view(6, 20), expected)
