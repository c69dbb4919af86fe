"""The gradient of every choice against its formula, and what these add up to.

Noise is replayed where it decides, so most comparisons are exact; the formulas are written with
matrices in ``estimator_cases``.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import dcgraph as dc
from dcgraph.estimators import ESTIMATORS
from dcgraph.estimators._draws import conditional
from estimator_cases import CASES, FUNCTIONS, Draw, jacobian, play, z_score
from statistics_of_fit import chi_square_p, kolmogorov_p

HARD = [name for name in FUNCTIONS if CASES[name].hard]
ONLY_CHOICE = [name for name in FUNCTIONS if CASES[name].only_choice]
TEMPERATURES = [(1.5, 0.7), (0.6, 1.3), (1.0, 1.0)]
THETA = torch.tensor([0.4, -0.3, 0.9, 0.0], dtype=torch.float64)
LINEAR = torch.tensor([1.0, -0.5, 0.3, 2.0], dtype=torch.float64)
SQUARE = torch.tensor(
    [[0.7, 0.2, -1.0, 0.4], [0.2, -0.8, 0.6, 0.0], [-1.0, 0.6, 1.5, -0.3], [0.4, 0.0, -0.3, 0.9]],
    dtype=torch.float64,
)
EYE = torch.eye(4, dtype=torch.float64)


def quadratic(z: Tensor) -> Tensor:
    return z @ LINEAR.to(z.dtype) + ((z @ SQUARE.to(z.dtype)) * z).sum(-1)


def slope(z: Tensor) -> Tensor:
    return LINEAR.to(z.dtype) + 2 * z @ SQUARE.to(z.dtype)


def exact_gradient(tau: float) -> Tensor:
    """Of E quadratic(D), D ~ softmax(theta / tau)."""
    p = (THETA / tau).softmax(-1)
    return jacobian(p) @ quadratic(EYE) / tau


def gradient_of_each_choice(name: str, tau: float, beta: float) -> Tensor:
    """Row D is the gradient of ``quadratic`` that comes back when D was chosen."""
    noise = 50.0 * EYE / beta  # which makes that choice
    _, gradient = play(name, THETA.expand(4, 4), slope(EYE), tau=tau, beta=beta, noise=noise)
    return gradient


@pytest.mark.parametrize(("tau", "beta"), TEMPERATURES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_value_and_gradient_of_a_draw_are_their_formulas(
    name: str, tau: float, beta: float
) -> None:
    seeded = torch.Generator().manual_seed(3)
    rows = 4 if CASES[name].draws_more else 12
    theta = torch.randn(rows, 4, generator=seeded, dtype=torch.float64)
    noise = dc.gumbel([rows, 4], generator=seeded, dtype=torch.float64)
    weights = torch.randn(rows, 4, generator=seeded, dtype=torch.float64)
    hard = dc.one_hot((theta + beta * noise).argmax(-1), 4, torch.float64)
    assert hard.sum(0).count_nonzero() > 1, "several categories are chosen"
    formula, value = CASES[name].gradient, CASES[name].value
    assert formula is not None
    for i in range(rows):
        row = Draw(theta[i], hard[i], noise[i], weights[i], tau, beta)
        expected, error = formula(row)
        copies = 4000 if CASES[name].draws_more else 1
        z, found = play(
            name,
            theta[i].expand(copies, 4),
            weights[i].expand(copies, 4),
            tau=tau,
            beta=beta,
            noise=noise[i].expand(copies, 4),
            generator=seeded,
        )
        wanted = hard[i] if value is None else value(row)
        torch.testing.assert_close(z[0], wanted, atol=1e-8, rtol=0)
        if CASES[name].draws_more:
            assert z_score(found, expected, error) < 4.5
        else:
            torch.testing.assert_close(found[0], expected, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("name", HARD)
def test_choices_are_of_beta_whatever_tau_is(name: str) -> None:
    """Two temperatures that are apart: as in decoupled straight-through Gumbel-softmax."""
    theta, tau, beta = THETA.float(), 5.0, 0.6
    z, _ = play(
        name,
        theta.expand(40_000, 4),
        tau=tau,
        beta=beta,
        generator=torch.Generator().manual_seed(0),
    )
    assert chi_square_p(z.sum(0), (theta / beta).softmax(-1)) > 1e-4
    assert chi_square_p(z.sum(0), (theta / tau).softmax(-1)) < 1e-4, "and the test can fail"


@pytest.mark.parametrize(("tau", "beta"), TEMPERATURES)
@pytest.mark.parametrize("name", ONLY_CHOICE)
def test_expectation_is_the_sum_over_choices(name: str, tau: float, beta: float) -> None:
    """With its bias, whatever that is: sum_D p(D) gradient(D), for a quadratic loss."""
    p = (THETA / beta).softmax(-1)
    formula = CASES[name].gradient
    assert formula is not None
    rows = [formula(Draw(THETA, d, torch.zeros(4), slope(d), tau, beta))[0] for d in EYE]
    expected = p @ torch.stack(rows)
    torch.testing.assert_close(p @ gradient_of_each_choice(name, tau, beta), expected)
    theta = THETA.float().expand(30_000, 4).clone().requires_grad_()
    seeded = torch.Generator().manual_seed(0)
    z = ESTIMATORS[name](theta, tau=tau, beta=beta, mask=None, noise=None, generator=seeded)
    (each,) = torch.autograd.grad(quadratic(z).sum(), theta)
    assert z_score(each, expected) < 4.5


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_bias_for_quadratic_losses_where_it_is_said_and_bias_elsewhere(
    name: str, tau: float
) -> None:
    """Exact, and where the temperatures are one."""
    if not CASES[name].only_choice:
        assert not CASES[name].quadratic
        return
    p = (THETA / tau).softmax(-1)
    bias = p @ gradient_of_each_choice(name, tau, tau) - exact_gradient(tau)
    if CASES[name].quadratic:
        assert bias.abs().max() < 1e-12
    else:
        assert bias.abs().max() > 1e-2


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
def test_straight_through_has_no_bias_for_linear_losses(tau: float) -> None:
    p = (THETA / tau).softmax(-1)
    _, each = play(
        "straight_through", THETA.expand(4, 4), LINEAR.expand(4, 4), tau=tau, beta=tau,
        noise=50 * EYE,
    )  # fmt: skip
    torch.testing.assert_close(p @ each, jacobian(p) @ LINEAR / tau)


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
def test_reinmax_is_zgr_where_the_temperatures_are_one(tau: float) -> None:
    theta, weights, noise = torch.randn(3, 40, 5, dtype=torch.float64)
    both = [
        play(name, theta, weights, tau=tau, beta=tau, noise=noise)[1] for name in ("reinmax", "zgr")
    ]
    torch.testing.assert_close(*both)
    apart = [
        play(name, theta, weights, tau=tau, beta=tau / 2, noise=noise)[1]
        for name in ("reinmax", "zgr")
    ]
    assert (apart[0] - apart[1]).abs().max() > 1e-2


@pytest.mark.parametrize(("tau", "beta"), [(0.5, 1.0), (1.0, 1.0), (2.0, 0.7)])
def test_gumbel_rao_has_the_mean_of_straight_through_gumbel_softmax_and_less_variance(
    tau: float, beta: float
) -> None:
    theta = THETA.float().expand(20_000, 4)
    gradients = {}
    for seed, name in enumerate(("straight_through_gumbel_softmax", "gumbel_rao")):
        leaf = theta.clone().requires_grad_()
        seeded = torch.Generator().manual_seed(seed)
        z = ESTIMATORS[name](leaf, tau=tau, beta=beta, mask=None, noise=None, generator=seeded)
        (gradients[name],) = torch.autograd.grad(quadratic(z).sum(), leaf)
    plain, rao = gradients.values()
    assert z_score(rao, plain.mean(0), plain.std(0) / len(plain) ** 0.5) < 4.5
    assert (rao.var(0) < plain.var(0)).all()
    if tau <= beta:
        assert rao.var(0).sum() < 0.9 * plain.var(0).sum()


def test_noise_on_a_condition_is_that_of_draws_that_happen_to_meet_it() -> None:
    """Each perturbed log-probability by its distribution function, and pairs by rejection."""
    seeded = torch.Generator().manual_seed(0)
    n = 50_000
    log_p = THETA.log_softmax(-1).expand(n, 4)
    for chosen in range(4):
        hard = EYE[chosen].expand(n, 4)
        fresh = -dc.gumbel([n, 4], generator=seeded, dtype=torch.float64)
        a = conditional(log_p, hard, fresh)
        assert (a.argmax(-1) == chosen).all()
        top = a[:, chosen]  # of all the largest: Gumbel(0, 1), for the probabilities add up to 1
        assert kolmogorov_p((-(-top).exp()).exp()) > 1e-4
        free = log_p[0] + dc.gumbel([8 * n, 4], generator=seeded, dtype=torch.float64)
        kept = free[free.argmax(-1) == chosen][: n // 2]
        other = (chosen + 1) % 4
        for statistic in (
            lambda x, j=other: x[:, j],
            lambda x, i=chosen, j=other: x[:, i] - x[:, j],
        ):
            bounds = statistic(a[: n // 2]).quantile(torch.linspace(0.1, 0.9, 9).double())
            counts = torch.bucketize(statistic(kept).contiguous(), bounds).bincount(minlength=10)
            # The bounds are drawn as well, which doubles the variance.
            assert chi_square_p(counts / 2, torch.full((10,), 0.1)) > 1e-4
        wrong = torch.bucketize(statistic(free[: n // 2]).contiguous(), bounds).bincount(
            minlength=10
        )
        assert chi_square_p(wrong / 2, torch.full((10,), 0.1)) < 1e-4, "the test can fail"


def test_a_gap_of_zero_is_no_move_and_a_negative_one_an_error() -> None:
    theta = torch.tensor([[2.0, 0.0, -1.0]], dtype=torch.float64)
    noise, weights = torch.tensor([[9.0, 0.0, 0.0]]).double(), torch.randn(1, 3).double()
    leaf = theta.clone().requires_grad_()
    z = dc.estimators.gapped_straight_through(leaf, tau=1.5, beta=1.0, noise=noise, gap=0.0)
    (found,) = torch.autograd.grad((z * weights).sum(), leaf)
    _, plain = play("straight_through", theta, weights, tau=1.5, noise=noise)
    torch.testing.assert_close(found, plain)
    with pytest.raises(ValueError, match=r"gap=-1\.0, but the choice is not to lie behind"):
        dc.estimators.gapped_straight_through(theta, tau=1.0, beta=1.0, gap=-1.0)


@pytest.mark.parametrize("name", ["gumbel_rao", "reinmax_rao", "reinmax_cv"])
def test_more_samples_are_less_variance_and_none_an_error(name: str) -> None:
    function = getattr(dc.estimators, name)
    noise = dc.gumbel([4], generator=torch.Generator().manual_seed(2)).expand(4000, 4)
    variances = []
    for samples in (1, 16):
        theta = THETA.float().expand(4000, 4).clone().requires_grad_()
        z = function(theta, tau=1.0, beta=1.0, noise=noise, samples=samples)
        (each,) = torch.autograd.grad((z * LINEAR.float()).sum(), theta)
        variances.append(each.var(0).sum())
    assert 12 < variances[0] / variances[1] < 20
    with pytest.raises(ValueError, match="samples=0, but a mean is of 1 or more"):
        function(THETA, tau=1.0, beta=1.0, samples=0)


def test_reinmax_cv_without_its_variate_is_zgr() -> None:
    theta, weights, noise = torch.randn(3, 40, 5, dtype=torch.float64)
    leaf = theta.clone().requires_grad_()
    z = dc.estimators.reinmax_cv(leaf, tau=1.5, beta=0.7, noise=noise, eta=0.0)
    (found,) = torch.autograd.grad((z * weights).sum(), leaf)
    torch.testing.assert_close(
        found, play("zgr", theta, weights, tau=1.5, beta=0.7, noise=noise)[1]
    )
