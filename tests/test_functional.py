"""Relaxed choices: closed forms, bounds and limits of the paper, masks."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import dcgraph as dc
from statistics_of_fit import chi_square_p


def closed_form_jacobian(z: Tensor, tau: float) -> Tensor:
    """dz_i / dtheta_j = z_i (1 - z_i) / tau if i = j, else -z_i z_j / tau (the paper's eq. 4)."""
    return (torch.diag(z) - torch.outer(z, z)) / tau


def jacobian(theta: Tensor, noise: Tensor, tau: float, beta: float) -> tuple[Tensor, Tensor]:
    def relaxed(theta: Tensor) -> Tensor:
        return dc.gumbel_softmax(theta, tau, beta=beta, noise=noise)

    by_autograd = torch.autograd.functional.jacobian(relaxed, theta)
    assert isinstance(by_autograd, Tensor)
    return relaxed(theta), by_autograd


finite = st.floats(-20, 20)
rows = st.integers(2, 8).flatmap(
    lambda k: st.tuples(
        st.lists(finite, min_size=k, max_size=k), st.lists(finite, min_size=k, max_size=k)
    )
)


@given(row=rows, tau=st.floats(0.05, 20), beta=st.floats(0, 5), weight=st.integers(0, 2**31))
def test_gradient_is_closed_form_and_bounded(
    row: tuple[list[float], list[float]], tau: float, beta: float, weight: int
) -> None:
    theta, noise = (torch.tensor(values, dtype=torch.float64) for values in row)
    z, found = jacobian(theta, noise, tau, beta)
    torch.testing.assert_close(found, closed_form_jacobian(z, tau))
    # |dz / dtheta_j| <= sqrt(2) / tau z_j, and |dL / dtheta_j| <= sqrt(2) / tau |dL / dz| z_j.
    bound = math.sqrt(2) / tau * z
    slack = 1e-12
    assert (found.norm(dim=0) <= bound + slack).all()
    dl_dz = torch.randn(len(z), generator=torch.Generator().manual_seed(weight)).double()
    assert ((dl_dz @ found).abs() <= bound * dl_dz.norm() + slack).all()


@pytest.mark.parametrize("hard", [False, True])
def test_gradcheck(hard: bool) -> None:
    torch.manual_seed(0)
    theta = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    noise = dc.gumbel([3, 4], dtype=torch.float64)
    tau = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    beta = torch.tensor([[0.5], [1.0], [2.0]], dtype=torch.float64, requires_grad=True)
    if hard:  # the value is piecewise constant, so compare with the gradient of the relaxed value
        weights = torch.randn(3, 4, dtype=torch.float64)
        gradients = [
            torch.autograd.grad(
                (dc.gumbel_softmax(theta, tau, beta=beta, noise=noise, hard=h) * weights).sum(),
                (theta, tau, beta),
            )
            for h in (True, False)
        ]
        torch.testing.assert_close(*gradients)
    else:
        assert torch.autograd.gradcheck(
            lambda t, s, b: dc.gumbel_softmax(t, s, beta=b, noise=noise), (theta, tau, beta)
        )


@pytest.mark.parametrize("hard", [False, True])
def test_gradient_of_tau_and_beta_under_a_mask(hard: bool) -> None:
    theta, noise = torch.randn(3, 4).double(), dc.gumbel([3, 4], dtype=torch.float64)
    mask = torch.tensor([True, True, False, True])
    dials = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (1.7, 0.6)]
    weights = torch.randn(3, 4).double()

    def loss(theta: Tensor, noise: Tensor, weights: Tensor, mask: Tensor | None) -> Tensor:
        tau, beta = dials
        z = dc.gumbel_softmax(theta, tau, beta=beta, noise=noise, mask=mask, hard=hard)
        return (z * weights).sum()

    found = torch.autograd.grad(loss(theta, noise, weights, mask), dials)
    alone = loss(theta[:, mask], noise[:, mask], weights[:, mask], None)
    torch.testing.assert_close(found, torch.autograd.grad(alone, dials))


def test_beta_to_zero_is_softmax_and_to_infinity_uniform_and_hard() -> None:
    torch.manual_seed(0)
    theta = torch.tensor([3.0, 0.0, -2.0, 1.0]).expand(50_000, -1)
    torch.testing.assert_close(
        dc.gumbel_softmax(theta, 2.0, beta=1e-6), (theta / 2.0).softmax(-1), atol=1e-4, rtol=0
    )
    z = dc.gumbel_softmax(theta, 2.0, beta=1e5)
    assert (z.amax(-1) > 0.999).float().mean() > 0.999
    assert chi_square_p(z.argmax(-1).bincount(minlength=4), torch.full((4,), 0.25)) > 1e-4


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
@pytest.mark.parametrize("hard", [False, True])
def test_dim(dim: int, hard: bool) -> None:
    logits, noise = torch.randn(3, 4, 5), dc.gumbel([3, 4, 5])
    z = dc.gumbel_softmax(logits, 2.0, dim=dim, noise=noise, hard=hard)
    last = dc.gumbel_softmax(logits.movedim(dim, -1), 2.0, noise=noise.movedim(dim, -1), hard=hard)
    torch.testing.assert_close(z, last.movedim(-1, dim))
    assert torch.equal(dc.sample(logits, dim=dim, noise=noise), (logits + noise).argmax(dim))


def test_hard_is_one_hot_of_the_perturbed_argmax() -> None:
    logits, noise = torch.randn(50, 9), dc.gumbel([50, 9])
    z = dc.gumbel_softmax(logits, 8.0, beta=2.0, noise=noise, hard=True)
    assert torch.equal(z, dc.one_hot((logits + 2.0 * noise).argmax(-1), 9))


def test_dial_tensors_broadcast_per_row() -> None:
    logits, noise = torch.randn(3, 4), dc.gumbel([3, 4])
    tau, beta = torch.tensor([[0.5], [1.0], [8.0]]), torch.tensor([[0.0], [1.0], [3.0]])
    z = dc.gumbel_softmax(logits, tau, beta=beta, noise=noise)
    for i in range(3):
        alone = dc.gumbel_softmax(logits[i], tau[i].item(), beta=beta[i].item(), noise=noise[i])
        torch.testing.assert_close(z[i], alone)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("by", ["mask", "-inf"])
def test_masked_categories_never_come_out_and_get_no_gradient(by: str, hard: bool) -> None:
    torch.manual_seed(0)
    mask = torch.rand(2000, 6) < 0.4
    mask[:, 0] |= ~mask.any(-1)
    theta = torch.randn(2000, 6)
    theta[~mask] = 30.0 if by == "mask" else -torch.inf
    theta.requires_grad_()
    given_mask = mask if by == "mask" else None
    z = dc.gumbel_softmax(theta, 0.5, beta=10.0, mask=given_mask, hard=hard)
    (gradient,) = torch.autograd.grad((z * torch.randn_like(z)).sum(), theta)
    assert (z[~mask] == 0).all() and (gradient[~mask] == 0).all()
    assert z.isfinite().all() and gradient.isfinite().all()
    torch.testing.assert_close(z.sum(-1), torch.ones(2000))
    for index in (
        dc.sample(theta, beta=10.0, mask=given_mask),
        dc.argmax(theta, mask=given_mask),
    ):
        assert mask.gather(-1, index.unsqueeze(-1)).all()


def test_entropy() -> None:
    theta = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    p = theta.softmax(-1)
    torch.testing.assert_close(dc.entropy(theta), -(p * p.log()).sum(-1))
    assert torch.autograd.gradcheck(dc.entropy, (theta,))
    mask = torch.tensor([True, True, False, False, False, False, False])
    (gradient,) = torch.autograd.grad(dc.entropy(theta, mask=mask).sum(), theta)
    assert gradient.isfinite().all() and (gradient[:, 2:] == 0).all()
    assert dc.entropy(torch.tensor([0.0, -1e4])) == 0
    torch.testing.assert_close(dc.entropy(torch.zeros(3, 4), dim=0), torch.full((4,), math.log(3)))


def test_straight_through_is_exact_in_half_precision() -> None:
    torch.manual_seed(0)
    soft = torch.rand(1000, dtype=torch.bfloat16, requires_grad=True)
    hard = (torch.rand(1000) < 0.5).to(torch.bfloat16)
    out = dc.straight_through(hard, soft)
    assert torch.equal(out, hard)
    (gradient,) = torch.autograd.grad(out.sum(), soft)
    assert (gradient == 1).all()


@pytest.mark.parametrize(("tau", "beta"), [(0.5, 1.0), (2.0, 0.3), (7.0, 3.0)])
def test_a_handful_of_numbers_is_the_formula_with_the_noise_that_was_drawn(
    tau: float, beta: float
) -> None:
    """Eager calls on the CPU with up to 1,024 numbers have a way of their own."""
    theta = torch.randn(4, 5)
    torch.manual_seed(11)
    with torch.device("meta"):  # the default device is not asked
        z = dc.gumbel_softmax(theta, tau, beta=beta)
    torch.manual_seed(11)
    noise = -(-torch.rand(4, 5, dtype=torch.float64).log()).log()
    expected = ((theta + beta * noise) / tau).softmax(-1).float()
    assert torch.allclose(z, expected, rtol=1e-5, atol=1e-7)
    torch.manual_seed(11)
    again = dc.gumbel_softmax(theta, tau, beta=beta, dim=1)
    assert torch.allclose(z, again, rtol=1e-5, atol=1e-7), "the way of larger calls has it, too"


def test_no_rows_at_all_need_no_dials_in_range() -> None:
    empty = dc.gumbel_softmax(torch.zeros(0, 3), torch.ones(0, 1), beta=torch.ones(0, 1))
    assert empty.shape == (0, 3)


def test_argmax_along_another_dimension() -> None:
    theta = torch.tensor([[1.0, 5.0, 0.0], [2.0, 3.0, -1.0]])
    assert dc.argmax(theta, dim=0).tolist() == [1, 0, 0]


def test_a_temperature_that_is_learned_divides_and_has_its_gradient() -> None:
    theta = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    mask, noise = torch.tensor([True, True, False]), dc.gumbel([3], dtype=torch.float64)
    tau = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    z = dc.gumbel_softmax(theta, tau, mask=mask, noise=noise)
    torch.testing.assert_close(z, dc.gumbel_softmax(theta, 2.0, mask=mask, noise=noise))
    assert torch.autograd.gradcheck(
        lambda tau: dc.gumbel_softmax(theta, tau, mask=mask, noise=noise), (tau,)
    )
