"""ListOps models for tests: random ones of every kind, and one that mostly computes right."""

from __future__ import annotations

import statistics
from dataclasses import replace
from functools import cache
from random import Random

import torch
import torch.nn.functional as F

from dcgraph.experiments.engine.task import Batch, Data
from dcgraph.experiments.tasks.listops.data import sets
from dcgraph.experiments.tasks.listops.data.expressions import (
    CLOSE,
    MIN,
    ZERO,
    Expression,
    parse,
)
from dcgraph.experiments.tasks.listops.data.generator import distinct
from dcgraph.experiments.tasks.listops.data.sets import distribution_of, tables_of, tensors_of
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
        encoder.increments.zero_()
        encoder.increments[MIN:ZERO, 0] = 1
        encoder.increments[CLOSE, 0] = -1
        encoder.distance[0] = 1
        encoder.scale.fill_(-20)
        encoder.scale[0] = 40
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


TEXTS = ("[MAX 2 9 [MIN 4 7 ] 0 ]", "[MED 3 1 ]", "[MIN [MAX 1 2 ] [MED 8 [MAX 0 5 ] 3 ] ]")


VARIANTS = {
    "paper": PAPER,
    "counters": replace(
        PAPER,
        encoder="ternary",
        parents="operators",
        earlier=True,
        senders="values",
        gate="vector",
        restart=True,
    ),
    "silent root": replace(PAPER, silent_root=True),
    "earlier": replace(PAPER, earlier=True),
    "operators": replace(PAPER, earlier=True, parents="operators"),
    "best match": replace(PAPER, earlier=True, parents="operators", encoder="counters"),
    "nearest match": replace(PAPER, earlier=True, parents="operators", encoder="nearest"),
    "given": replace(PAPER, edges="given"),
    "pairs": replace(PAPER, masks="pair"),
    "always": replace(PAPER, residual="always"),
    "weighted": replace(PAPER, residual="weighted"),
    "lstm": replace(PAPER, model="lstm"),
    "states": replace(PAPER, model="states"),
    "states given": replace(PAPER, model="states", edges="given"),
    "arborescence": replace(PAPER, model="states", prior="arborescence"),
    "spanning tree": replace(PAPER, model="states", prior="spanning_tree"),
    "tree of digits": replace(PAPER, prior="arborescence"),
}


OURS = (
    "paper",
    "counters",
    "silent root",
    "earlier",
    "operators",
    "best match",
    "nearest match",
    "given",
    "pairs",
    "always",
    "weighted",
)
LEARNED = tuple(name for name, settings in VARIANTS.items() if settings.edges == "learned")


def batch_of(texts: tuple[str, ...]) -> Batch:
    table = tensors_of([parse(text) for text in texts])
    return {name: tensor.long() for name, tensor in table.items()}


def tree_model(name: str, seed: int = 0) -> LatentTree:
    torch.manual_seed(seed)
    model = ListOps().model(VARIANTS[name])
    assert isinstance(model, LatentTree)
    return model


def inputs_of(batch: Batch) -> Batch:
    return sets.to_batch({}, batch, False)


EXPRESSION = "[MAX 2 9 [MIN 4 7 ] 0 ]"


def python_value(text: str) -> int:
    """The oracle: the expression as Python, evaluated by Python."""
    code = [f"{t[1:]}([" if "[" in t else "])," if t == "]" else f"{t}," for t in text.split()]
    named = {"MIN": min, "MAX": max, "MED": lambda some: int(statistics.median(some))}
    return int(eval("".join(code).strip(","), named))


def python_parents(text: str) -> list[int]:
    """The operator that each token belongs to."""
    parents, opened = [], [-1]
    for position, token in enumerate(text.split()):
        parents.append(opened[-1])
        if token == "]":
            opened.pop()
        elif token.startswith("["):
            opened.append(position)
    return parents


def small_data(**deeper: list[Expression]) -> Data:
    splits = {"train": some_expressions(5), "test": some_expressions(30), **deeper}
    return Data(
        {name: tables_of(some) for name, some in splits.items()}, "", to_batch=sets.to_batch
    )
