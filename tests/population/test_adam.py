"""Adam over rows against torch's own optimizer, one per row."""

from __future__ import annotations

import pytest
import torch

from dcgraph.population import _adam as adam
from dcgraph.population._adam import adam_, moments_like

RATES = (1e-3, 3e-2)


WAYS = [adam_, adam._all_rows]  # the second is what compiled steps do


@pytest.mark.parametrize("update", WAYS)
def test_each_row_takes_the_steps_of_its_own_optimizer(update: object) -> None:
    assert callable(update)
    torch.manual_seed(0)
    weights = torch.randn(2, 37)
    models = [row.clone().requires_grad_() for row in weights]
    optimizers = [torch.optim.Adam([m], lr=lr) for m, lr in zip(models, RATES, strict=True)]
    moments, lr = moments_like(weights), torch.tensor(RATES)
    for step in range(1, 21):
        gradient = torch.randn(2, 37) * torch.logspace(-6, 2, 37)
        gradient[:, 5] = 0.0  # never moves
        update(weights, [(slice(0, 37), gradient)], moments, lr, torch.tensor(step))
        for model, optimizer, own in zip(models, optimizers, gradient, strict=True):
            model.grad = own.clone()
            optimizer.step()
    torch.testing.assert_close(weights, torch.stack(models).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("update", WAYS)
def test_a_learning_rate_of_0_keeps_a_row_to_the_bit(update: object) -> None:
    """Whatever its gradient: this is how a replica that diverged stops."""
    assert callable(update)
    weights = torch.randn(2, 37)
    before = weights.clone()
    moments, lr = moments_like(weights), torch.tensor([0.0, 1e-2])
    gradient = torch.ones(2, 37)
    gradient[0, 3] = torch.nan
    update(weights, [(slice(0, 37), gradient)], moments, lr, torch.tensor(1))
    assert torch.equal(weights[0], before[0])
    assert (weights[1] < before[1]).all()
