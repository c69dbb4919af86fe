"""Where noise is small, as at the start of TempMatch, the choice is all but certain."""

from __future__ import annotations

import pytest
import torch

from dcgraph.estimators import ESTIMATORS, _draws
from estimator_cases import jacobian


@pytest.mark.parametrize("name", ["gumbel_rao", "reinmax_rao"])
@pytest.mark.parametrize("beta", [0.0, 1e-4, 0.02])
def test_noise_on_a_condition_knows_how_far_a_category_is_behind(name: str, beta: float) -> None:
    """Probabilities that are 0 in float32 are no reason to forget the logits.

    Where noise hardly matters, the Jacobian is that of softmax(theta / tau), with a logit of any
    size in the lead. ReinMax has it twice.
    """
    torch.manual_seed(0)
    theta = torch.tensor([205.0, 200.0, 203.0], requires_grad=True)
    weights, tau = torch.tensor([1.0, 2.0, 5.0]), 2.0
    z = ESTIMATORS[name](theta, tau=tau, beta=beta, mask=None, noise=None, generator=None)
    (found,) = torch.autograd.grad((z * weights).sum(), theta)
    smooth = (theta / tau).softmax(-1)
    (expected,) = torch.autograd.grad((smooth * weights).sum(), theta)
    factor = 1 if name == "gumbel_rao" else 2
    torch.testing.assert_close(found, factor * expected, atol=2 * beta + 1e-4, rtol=0)


@pytest.mark.parametrize("name", ["gumbel_rao", "reinmax_rao"])
@pytest.mark.parametrize("largest", [False, True])
def test_the_ends_of_the_noise_are_finite(
    name: str, largest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smallest and the largest number that is drawn, [0, 1) in steps of 2^-24."""
    end = 1 - 2.0**-24 if largest else 0.0
    monkeypatch.setattr(_draws, "draw_uniform", lambda shape, *_: torch.full(shape, end))
    theta = torch.tensor([0.3, -0.2, 0.1], requires_grad=True)
    tau, beta, weights = 2.0, 1.0, torch.tensor([1.0, 2.0, 5.0])
    noise = torch.tensor([0.0, 0.0, 9.0])
    z = ESTIMATORS[name](theta, tau=tau, beta=beta, mask=None, noise=noise, generator=None)
    (found,) = torch.autograd.grad((z * weights).sum(), theta)

    e = -torch.log1p(-torch.tensor(end + 2.0**-26, dtype=torch.float64))
    p = theta.detach().double().softmax(-1)
    at = p if name == "gumbel_rao" else (p + torch.eye(3)[2]) / 2
    a = -torch.log(e / at + e)
    a[2] = -torch.log(e)
    expected = jacobian((a * beta / tau).softmax(-1)) @ weights.double() / tau
    if name == "reinmax_rao":
        expected = 2 * expected - jacobian(p) @ weights.double() / (2 * tau)
    torch.testing.assert_close(found, expected.float())
