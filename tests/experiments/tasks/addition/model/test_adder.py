"""The paper's network for addition: its sizes, its formula, its gates."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import dcgraph as dc
from dcgraph.experiments.tasks.addition.model.adder import Adder, LeNet
from dcgraph.experiments.tasks.addition.settings import (
    BEST,
    COMPARED,
    PAPER,
    SUMS,
    AdditionSettings,
)
from dcgraph.experiments.tasks.addition.task import Addition

TASK = Addition()


def parameters(settings: AdditionSettings) -> int:
    return sum(p.numel() for p in TASK.model(settings).parameters())


def test_the_networks_have_the_papers_sizes() -> None:
    assert parameters(PAPER) == 94_900
    assert parameters(replace(PAPER, model="cnn")) == 98_951
    assert parameters(BEST) == 94_900
    codebook = TASK.model(PAPER).get_parameter("symbol.codebook")
    assert codebook.shape == (19, 84)
    chain = TASK.model(replace(PAPER, summands=3))
    assert chain.get_parameter("symbol.codebook").shape == (28, 84)


def test_the_network_is_the_papers_formula() -> None:
    """The appendix, equation by equation, with torch's own convolutions."""
    torch.manual_seed(0)
    model = TASK.model(PAPER).eval()
    assert isinstance(model, Adder) and isinstance(model.encode, LeNet)
    images = torch.rand(4, 2, 28, 28)
    c, mlp = model.symbol.codebook, model.encode.mlp
    first, second = (model.encode.convolutions.get_submodule(name) for name in "01")

    def encode(x: torch.Tensor) -> torch.Tensor:
        e = x.unsqueeze(1)
        for layer in (first, second):
            e = nn.functional.conv2d(e, layer.get_parameter("weight"), layer.get_parameter("bias"))
            e = nn.functional.max_pool2d(e, 2).relu()
        out: torch.Tensor = mlp(e.flatten(1))
        return out

    def discrete(x: torch.Tensor) -> torch.Tensor:
        return c[(x @ c.T).argmax(-1)]

    x1, x2 = (discrete(encode(images[:, k])) for k in range(2))
    x12 = model.add[0](torch.cat([x1, x2], -1)).relu()
    torch.testing.assert_close(model(images), x12 @ c.T)


def test_a_chain_is_discrete_after_each_image_and_after_the_first_sum() -> None:
    model = TASK.model(replace(PAPER, summands=3)).eval()
    with dc.trace(model) as steps:
        model(torch.rand(5, 3, 28, 28))
    assert [tuple(step.index.shape) for step in steps] == [(3, 5), (1, 5)]


@pytest.mark.parametrize(("gate", "draws"), [("batch", 3), ("example", 15)])
def test_the_gate_is_shared_by_a_batch_of_images_or_belongs_to_an_example(
    gate: str, draws: int
) -> None:
    model = Adder(LeNet(256, 120, 8, 8), 8, 4, 3, gate=gate).train()
    dc.Dials(tau=1.0, beta=0.0, alpha=0.5).attach(model)
    u = torch.randn(3, 5, 8)
    patterns = set()
    for _ in range(200):
        v = model.symbol(u)
        residual = v - torch.softmax(model.symbol.logits(u), -1) @ model.symbol.codebook
        open_gates = residual.abs().sum(-1) > 1e-3
        if gate == "batch":
            assert (open_gates == open_gates[:, :1]).all()
        patterns.add(tuple(open_gates.flatten().tolist()))
    assert len(patterns) > (100 if draws > 3 else 4)


def test_two_codebooks_have_more_rows_than_numbers() -> None:
    """One for the images, one for the sum on the way; a layer of its own answers."""
    model = TASK.model(COMPARED).eval()
    assert isinstance(model, Adder) and model.sum is not None
    assert model.symbol.codebook.shape == model.sum.codebook.shape == (64, 32)
    assert 0.9 < model.symbol.codebook.std().item() < 1.1
    images = torch.rand(5, 3, 8, 8)
    with dc.trace(model) as steps:
        answers = model(images)
    assert answers.shape == (5, 28)
    read, total = (step.index for step in steps)
    assert tuple(read.shape) == (3, 5) and tuple(total.shape) == (1, 5)
    computed = model.compute(read.T)
    assert torch.equal(computed[:, 0], total[0])
    assert torch.equal(computed[:, 1], answers.argmax(-1))
    assert torch.equal(model.read(images.flatten(0, 1)).view(5, 3), read.T)
    two = TASK.model(replace(COMPARED, summands=2))
    assert isinstance(two, Adder) and two.sum is None, "there is no sum on the way"


def test_sums_on_the_way_choose_among_the_answers() -> None:
    """The codebook of the sums classifies the answer, too; and one layer adds at every step."""
    model = TASK.model(SUMS).eval()
    assert isinstance(model, Adder) and model.sum is not None and model.answer is None
    assert model.symbol.codebook.shape == (256, 84) and model.sum.codebook.shape == (46, 84)
    assert len(model.add) == 1
    images = torch.rand(6, 5, 28, 28)
    with dc.trace(model) as steps:
        answers = model(images)
    assert answers.shape == (6, 46)
    read, *sums = (step.index for step in steps)
    assert len(sums) == 3
    computed = model.compute(read.T)
    assert torch.equal(computed, torch.stack([*(one[0] for one in sums), answers.argmax(-1)], 1))
    short = model(images[:, :2])
    with dc.trace(model) as steps:
        model(images[:, :3])
    assert torch.equal(steps[1].index[0], short.argmax(-1)), "an answer is a state of longer sums"


def test_by_distance_no_relu_keeps_sums_on_one_side_of_zero() -> None:
    by_product = TASK.model(replace(SUMS, similarity="product"))
    assert isinstance(by_product, Adder) and by_product.relu
    model = TASK.model(SUMS)
    assert isinstance(model, Adder) and not model.relu
