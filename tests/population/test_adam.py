"""Adam over rows against torch's own optimizer, one per row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.population import _adam as adam
from dcgraph.population._adam import BETAS, EPSILON, Block, adam_

RATES = [1e-3, 3e-2]


def by_rows(blocks: list[Block], lr: Tensor) -> None:
    adam._all_rows(blocks, lr, BETAS, EPSILON)


WAYS = [adam_, by_rows]  # the second is what compiled steps do


def block_of(weights: Tensor) -> Block:
    zeros = torch.zeros_like(weights)
    return Block(weights, zeros.clone(), zeros.clone(), zeros.clone(), torch.tensor(0))


@pytest.mark.parametrize("update", WAYS)
def test_each_row_takes_the_steps_of_its_own_optimizer(update: Any) -> None:
    torch.manual_seed(0)
    weights = torch.randn(2, 37)
    models = [row.clone().requires_grad_() for row in weights]
    optimizers = [torch.optim.Adam([m], lr=lr) for m, lr in zip(models, RATES, strict=True)]
    block, lr = block_of(weights), torch.tensor(RATES)
    for _ in range(20):
        block.gradient = torch.randn(2, 37) * torch.logspace(-6, 2, 37)
        block.gradient[:, 5] = 0.0  # never moves
        block.step += 1
        update([block], lr)
        for model, optimizer, own in zip(models, optimizers, block.gradient, strict=True):
            model.grad = own.clone()
            optimizer.step()
    torch.testing.assert_close(weights, torch.stack(models).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("update", WAYS)
def test_a_learning_rate_of_0_keeps_a_row_to_the_bit(update: Any) -> None:
    """Whatever its gradient: this is how a replica that diverged stops."""
    weights = torch.randn(2, 37)
    before = weights.clone()
    block, lr = block_of(weights), torch.tensor([0.0, 1e-2])
    block.gradient += 1
    block.gradient[0, 3] = torch.nan
    block.step += 1
    update([block], lr)
    assert torch.equal(weights[0], before[0])
    assert (weights[1] < before[1]).all()


def population() -> dc.Population:
    return dc.Population(lambda: nn.Linear(4, 3), range(2))


def gradients_of(replicas: dc.Population, step: int) -> None:
    data = torch.Generator().manual_seed(step)
    for parameter in replicas.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=data)


@pytest.mark.parametrize("lr", [0.01, RATES])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1, [0.0, 0.3]])
def test_the_optimizer_is_adamw_of_each_replica(lr: Any, weight_decay: Any) -> None:
    together = population()
    optimizer = dc.population.Adam(
        together.parameters(), lr, betas=(0.8, 0.99), eps=1e-6, weight_decay=weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    alone = [together.replica(r) for r in range(2)]
    rates = lr if isinstance(lr, list) else [lr] * 2
    decays = weight_decay if isinstance(weight_decay, list) else [weight_decay] * 2
    others = [
        torch.optim.AdamW(m.parameters(), r, betas=(0.8, 0.99), eps=1e-6, weight_decay=d)
        for m, r, d in zip(alone, rates, decays, strict=True)
    ]
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)) for o in others]
    for step in range(5):
        gradients_of(together, step)
        optimizer.step()
        schedule.step()
        for r, (model, other, own) in enumerate(zip(alone, others, schedules, strict=True)):
            for p, stacked in zip(model.parameters(), together.parameters(), strict=True):
                assert stacked.grad is not None
                p.grad = stacked.grad[r].clone()
            other.step()
            own.step()
    for r, model in enumerate(alone):
        for p, stacked in zip(model.parameters(), together.parameters(), strict=True):
            torch.testing.assert_close(stacked[r], p, rtol=1e-5, atol=1e-6)


def test_a_parameter_without_a_gradient_does_not_move() -> None:
    together = population()
    optimizer = dc.population.Adam(together.parameters(), RATES, weight_decay=0.1)
    weight, bias = together.parameters()
    before = bias.clone()
    for step in range(3):
        gradients_of(together, step)
        bias.grad = None
        optimizer.step()
    assert torch.equal(bias, before) and bias not in optimizer.state
    assert optimizer.state[weight]["step"] == 3


def test_a_saved_optimizer_goes_on_to_the_bit(tmp_path: Path) -> None:
    def run(together: dc.Population, optimizer: Any, steps: range) -> None:
        for step in steps:
            gradients_of(together, step)
            optimizer.step()

    whole = population()
    run(whole, dc.population.Adam(whole.parameters(), RATES), range(6))
    first = population()
    optimizer = dc.population.Adam(first.parameters(), RATES)
    run(first, optimizer, range(3))
    torch.save([first.state_dict(), optimizer.state_dict()], tmp_path / "run.pt")
    second = population()
    other = dc.population.Adam(second.parameters(), [1.0, 1.0])
    weights, state = torch.load(tmp_path / "run.pt", weights_only=True)
    second.load_state_dict(weights)
    other.load_state_dict(state)
    run(second, other, range(3, 6))
    for own, expected in zip(second.parameters(), whole.parameters(), strict=True):
        assert torch.equal(own, expected)


def test_rates_are_one_or_one_for_each_replica() -> None:
    with pytest.raises(ValueError, match="lr has 3 values, but the population has 2 replicas"):
        dc.population.Adam(population().parameters(), [1e-3] * 3)
    with pytest.raises(ValueError, match="lr=-1"):
        dc.population.Adam(population().parameters(), -1)
    with pytest.raises(ValueError, match="not those of a population"):
        dc.population.Adam(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).parameters())


def test_a_closure_computes_the_loss_with_gradients() -> None:
    population = dc.Population(lambda: nn.Linear(3, 1), seeds=range(2))
    optimizer, x = adam.Adam(population.parameters(), lr=0.01), torch.randn(4, 3)
    before = [p.detach().clone() for p in population.parameters()]

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = population(x).square().sum()
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure) > 0
    assert not any(map(torch.equal, population.parameters(), before))


def test_where_nothing_has_a_gradient_nothing_moves() -> None:
    population = dc.Population(lambda: nn.Linear(3, 1), seeds=range(2))
    optimizer = adam.Adam(population.parameters(), lr=0.01)
    before = [p.detach().clone() for p in population.parameters()]
    assert optimizer.step() is None and all(map(torch.equal, population.parameters(), before))


def test_no_blocks_are_no_step() -> None:
    adam_([], torch.ones(2))
