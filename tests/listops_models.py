"""ListOps models for tests: random ones of every kind, and one that mostly computes right."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

import torch
import torch.nn.functional as F

from dcgraph.experiments.tasks.listops.data.expressions import CLOSE, MIN, ZERO, Expression
from dcgraph.experiments.tasks.listops.data.generator import distinct
from dcgraph.experiments.tasks.listops.data.sets import distribution_of
from dcgraph.experiments.tasks.listops.model.edges import Counters
from dcgraph.experiments.tasks.listops.model.latent_tree import LatentTree
from dcgraph.experiments.tasks.listops.settings import PAPER
from dcgraph.experiments.tasks.listops.task import ListOps

TASK = ListOps()
RANDOM = replace(PAPER, dim=16)
ABLE = replace(PAPER, dim=32, encoder="ternary", parents="operators", earlier=True)


def some_expressions(count: int = 40, depths: tuple[int, ...] = (1, 2, 3, 5)) -> list[Expression]:
    return [e for depth in depths for e in distinct(distribution_of(depth), count, Random(depth))]


def parser() -> Counters:
    """Weights by hand: brackets are counted, and the parent is the nearest operator one up."""
    encoder = Counters(counters=4)
    with torch.no_grad():
        encoder.moves.zero_()
        encoder.moves[MIN:ZERO, 0] = 1
        encoder.moves[CLOSE, 0] = -1
        encoder.distance[0] = 1
        encoder.sharpness.fill_(-20)
        encoder.sharpness[0] = 40
        encoder.bias.fill_(-10)
        encoder.bias[:, MIN:ZERO] = 10
    return encoder


@cache
def able_weights(steps: int = 1000) -> dict[str, torch.Tensor]:
    """Of a model with that parser whose operators are trained directly, for a few seconds.

    Every operator has one closing bracket below it, which becomes a 9 after the first round.
    """
    state = torch.get_rng_state()
    torch.manual_seed(0)
    model = TASK.model(ABLE)
    assert isinstance(model, LatentTree)
    model.edges.encode = parser()
    trained = [p for name, p in model.named_parameters() if not name.startswith("edges.encode.")]
    optimiser = torch.optim.Adam(trained, 5e-3)
    known, become = torch.tensor([CLOSE, *range(ZERO, ZERO + 10)]), torch.tensor([9, *range(10)])
    batch = 200
    for step in range(steps):
        digits, operator = torch.randint(10, (batch, 2 + step % 4)), torch.randint(3, (batch,))
        ordered, count = digits.sort(1).values, digits.shape[1]
        median = (ordered[:, (count - 1) // 2] + ordered[:, count // 2]) // 2
        value = torch.stack([ordered[:, 0], ordered[:, -1], median], 1)[range(batch), operator]
        bracket = torch.where(torch.rand(batch, 1) < 0.5, CLOSE, ZERO + 9)
        sender = model.message.of_sender(model.embedding[torch.cat([ZERO + digits, bracket], 1)])
        receiver = model.message.of_receiver(model.embedding[MIN:ZERO])[operator].unsqueeze(1)
        before = torch.where(torch.rand(batch) < 0.5, MIN + operator, ZERO + digits[:, 0])
        received = model.message.last((receiver + sender).relu()).relu().sum(1)
        loss = F.cross_entropy(model.value.logits(model.embedding[before] + received), value)
        loss = loss + F.cross_entropy(model.value.logits(model.embedding[known]), become)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    torch.set_rng_state(state)
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def able_model() -> LatentTree:
    model = TASK.model(ABLE)
    assert isinstance(model, LatentTree)
    model.load_state_dict(able_weights(), strict=False)
    return model.eval()
