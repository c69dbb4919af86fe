"""The density of Gumbel-softmax samples against sampling and against torch."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

import dcgraph as dc
from dcgraph.experiments.figures import simplex
from pictures import check_figure

LOGITS = torch.tensor([2.0, 0.5, 1.0], dtype=torch.float64).log()


# Pairs with the same tau / beta, and with the same tau or beta: mixing them up shows.
TEMPERATURES = [(2.0, 1.0), (1.0, 0.5), (1.0, 1.0), (0.5, 1.0), (1.0, 2.0), (3, 4)]


def quadrature(tau: float, beta: float, steps: int = 900) -> tuple[Tensor, Tensor]:
    """Points of the simplex and their probability under log_density.

    The grid is even in u, z = softmax(u, 0): there the density is smooth and decays at a rate of
    tau / beta, while it diverges at the corners in z. The Jacobian is the product of the z_i.
    """
    reach = 25 * beta / tau
    u = torch.linspace(-reach, reach, steps, dtype=torch.float64)
    coordinates = torch.cartesian_prod(u, u)
    log_z = torch.cat([coordinates, torch.zeros(len(coordinates), 1)], -1).log_softmax(-1)
    log_p = simplex.log_density(log_z.exp(), LOGITS, tau, beta) + log_z.sum(-1)
    return log_z.exp(), log_p.exp() * (u[1] - u[0]) ** 2


def regions(z: Tensor) -> Tensor:
    """Membership in seven regions: each corner's third, nearly discrete, even, two halves."""
    largest = z.amax(-1, keepdim=True)
    others = [largest > 0.9, largest < 0.5, z[:, :1] > 2 * z[:, 2:], z[:, 1:2] > 0.2]
    return torch.cat([z == largest, *others], -1).double()


@pytest.mark.parametrize(("tau", "beta"), TEMPERATURES)
def test_density_is_that_of_the_samples(tau: float, beta: float) -> None:
    points, probability = quadrature(tau, beta)
    assert probability.sum().item() == pytest.approx(1, abs=1e-6)
    generator = torch.Generator().manual_seed(0)
    draws = 200_000
    z = dc.gumbel_softmax(LOGITS.expand(draws, -1), tau, beta=beta, generator=generator)
    expected, seen = probability @ regions(points), regions(z).mean(0)
    # Five standard errors, and as much again for the steps of the grid at the regions' borders.
    assert (expected - seen).abs().max().item() < 10 * 0.5 / math.sqrt(draws)


@pytest.mark.parametrize(("tau", "beta"), TEMPERATURES)
def test_density_agrees_with_torch(tau: float, beta: float) -> None:
    concrete = torch.distributions.RelaxedOneHotCategorical(
        torch.tensor(tau / beta, dtype=torch.float64), logits=LOGITS / beta
    )
    z = torch.rand(50, 3, dtype=torch.float64).softmax(-1)
    torch.testing.assert_close(simplex.log_density(z, LOGITS, tau, beta), concrete.log_prob(z))


def test_density_takes_logits_per_row() -> None:
    z = torch.rand(4, 3, dtype=torch.float64).softmax(-1)
    logits = torch.randn(4, 3, dtype=torch.float64)
    rows = [simplex.log_density(z[i], logits[i], 1, 2) for i in range(4)]
    torch.testing.assert_close(simplex.log_density(z, logits, 1, 2), torch.stack(rows))


def test_no_density_without_noise() -> None:
    with pytest.raises(ValueError, match="beta=0 has no density"):
        simplex.log_density(LOGITS.softmax(-1), LOGITS, tau=1.0, beta=0.0)
    with pytest.raises(ValueError, match="tau=0"):
        simplex.log_density(LOGITS.softmax(-1), LOGITS, tau=0.0, beta=1.0)


def test_simplex_shows_the_point_of_the_paper() -> None:
    tau_row, beta_row = simplex.compute(resolution=4)["rows"]
    weights = [weight / sum(simplex.WEIGHTS) for weight in simplex.WEIGHTS]
    for panel in tau_row["panels"]:
        assert panel["shares"] == pytest.approx(weights, abs=1e-4)
    largest = [max(panel["shares"]) for panel in beta_row["panels"]]
    assert largest == sorted(largest, reverse=True)
    point = beta_row["panels"][0]
    assert point["density"] is None
    assert point["samples"] == [pytest.approx(weights, abs=1e-3)]


def test_the_picture_is_made_of_the_seed_only(tmp_path: Path) -> None:
    check_figure("simplex", lambda seed: simplex.compute(seed, resolution=8), tmp_path)
