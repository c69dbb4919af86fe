"""Where noise is small, as at the start of TempMatch, the choice is all but certain."""

from __future__ import annotations

import pytest
import torch

from dcgraph.estimators import ESTIMATORS


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
