"""The Triton kernels against their reference, in Triton's interpreter where there is no GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import dcgraph as dc
from dcgraph.functional import _relax_by_kernel
from dcgraph.noise import random_keys
from statistics_of_fit import kolmogorov_p

kernel = pytest.importorskip("dcgraph.kernels._relaxation", reason="the kernels need Triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def seed(value: int) -> Tensor:
    return torch.tensor([value], device=DEVICE)


def inputs(rows: int, k: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(rows * k)
    theta = torch.randn(rows, k, device=DEVICE)
    tau, beta = torch.rand(rows, device=DEVICE) + 0.5, torch.rand(rows, device=DEVICE)
    return theta.requires_grad_(), tau, beta


def reference(theta: Tensor, tau: Tensor, beta: Tensor, key: Tensor) -> Tensor:
    noise = kernel.drawn_noise(key, *theta.shape)
    return dc.gumbel_softmax(theta, tau.unsqueeze(-1), beta=beta.unsqueeze(-1), noise=noise)


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).detach().norm() / expected.detach().norm())


# One partial tile; whole tiles; whole tiles and a rest; more than the backward pass holds.
@pytest.mark.parametrize("shape", [(3, 10), (1, 8192), (2, 5001), (1, 50_001)])
def test_kernel_equals_its_reference(shape: tuple[int, int]) -> None:
    theta, tau, beta = inputs(*shape)
    z = kernel.relax(theta, tau, beta, seed(7))
    expected = reference(theta, tau, beta, seed(7))
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

    found = curvature(kernel.relax(theta, tau, beta, seed(7)))
    assert relative_error(found, curvature(reference(theta, tau, beta, seed(7)))) < 1e-4


def test_empty_rows_and_masked_entries_are_zeros() -> None:
    theta, tau, beta = inputs(3, 40)
    with torch.no_grad():
        theta[1] = -torch.inf
        theta[2, 5:] = -torch.inf
    z = kernel.relax(theta, tau, beta, seed(7))
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


def population_noise(outer: bool, inner: bool) -> Tensor:
    """Rows [2, 2, 2, 20] of equal logits, mapped twice, with noise that differs or not."""
    keys = torch.arange(4, device=DEVICE).view(2, 2, 1)
    keys = keys if inner else keys[:, 0]
    keys = keys if outer else keys[0]
    one = torch.ones(2, device=DEVICE)

    def rows(theta: Tensor, key: Tensor) -> Any:
        return kernel.relax(theta, one, one, key)

    mapped = torch.vmap(rows, (0, 0 if inner else None))
    twice = torch.vmap(mapped, (0, 0 if outer else None))
    z: Tensor = twice(torch.zeros(2, 2, 2, 20, device=DEVICE), keys)
    return z


@pytest.mark.parametrize("outer", [False, True])
@pytest.mark.parametrize("inner", [False, True])
def test_vmap_shares_noise_as_asked(outer: bool, inner: bool) -> None:
    z = population_noise(outer, inner)
    assert torch.equal(z[0], z[1]) == (not outer)
    assert torch.equal(z[:, 0], z[:, 1]) == (not inner)
    assert not torch.equal(z[..., 0, :], z[..., 1, :]), "rows never share theirs"


def test_gradient_inside_vmap() -> None:
    theta, tau, beta = inputs(6, 20)
    stacked, dials = theta.detach().view(3, 2, 20), (tau.view(3, 2), beta.view(3, 2))

    def loss(t: Tensor, tau: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        z = kernel.relax(t, tau, beta, seed(7))
        return z.square().sum(), z

    gradient, z = torch.vmap(torch.func.grad(loss, has_aux=True))(stacked, *dials)
    for i in range(3):
        leaf = stacked[i].clone().requires_grad_()
        alone = kernel.relax(leaf, dials[0][i], dials[1][i], seed(7))
        torch.testing.assert_close(z[i], alone.detach())
        torch.testing.assert_close(gradient[i], torch.autograd.grad(alone.square().sum(), leaf)[0])


def test_mapped_dimension_may_stand_anywhere() -> None:
    theta, tau, beta = inputs(6, 20)
    stacked = theta.detach().view(3, 2, 20)

    def rows(theta: Tensor, tau: Tensor) -> Any:
        return kernel.relax(theta, tau, beta[:2], seed(7))

    expected = torch.vmap(rows)(stacked, tau.view(3, 2))
    found = torch.vmap(rows, (1, 1))(stacked.movedim(0, 1), tau.view(3, 2).T)
    torch.testing.assert_close(found, expected)


def test_learned_dials_are_refused_inside_vmap() -> None:
    theta, tau, beta = inputs(6, 20)
    tau.requires_grad_()
    with pytest.raises(RuntimeError, match="no gradient for tau and beta"):
        torch.vmap(lambda t, s: kernel.relax(t, s, beta[:2], seed(7)))(
            theta.view(3, 2, 20), tau.view(3, 2)
        )


def test_nan_stays_visible() -> None:
    theta, tau, beta = inputs(2, 20)
    with torch.no_grad():
        theta[0, 3] = torch.nan
    z = kernel.relax(theta, tau, beta, seed(7))
    assert z[0].isnan().all() and z[1].isfinite().all()


def test_no_rows() -> None:
    nothing = torch.zeros(0, device=DEVICE)
    assert kernel.relax(torch.zeros(0, 20, device=DEVICE), nothing, nothing, seed(7)).shape == (
        0,
        20,
    )


@pytest.mark.parametrize("noise", ["gumbel", "reversed", None])
def test_gumbel_softmax_hands_its_rows_and_dials_to_the_kernel(noise: Any) -> None:
    """Numbers or one value per row; any leading shape; -beta for reversed noise."""
    torch.manual_seed(3)
    theta = torch.randn(2, 3, 10, device=DEVICE)
    rows = torch.rand(2, 1, 1, device=DEVICE) + 0.5, torch.rand(3, 1, device=DEVICE)
    for tau, beta in ((0.7, 1.5), rows):
        torch.manual_seed(4)
        found = _relax_by_kernel(theta, tau, beta, noise)
        torch.manual_seed(4)
        drawn = kernel.drawn_noise(random_keys(1, theta.device), 6, 10).view(theta.shape)
        drawn = -drawn if noise == "reversed" else drawn
        assert relative_error(found, dc.gumbel_softmax(theta, tau, beta=beta, noise=drawn)) < 1e-5
