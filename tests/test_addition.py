"""The addition task: the paper's networks, what the baselines compute, and what can be read out."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from problog import get_evaluatable
from problog.program import PrologString
from torch import nn

import dcgraph as dc
from dcgraph.experiments.engine.models import save_model
from dcgraph.experiments.tasks.addition.augment import jitter
from dcgraph.experiments.tasks.addition.baselines import Concatenated, Marginalised, log_sum_law
from dcgraph.experiments.tasks.addition.commands import drawn, evaluate, predict, side_by_side
from dcgraph.experiments.tasks.addition.model import Adder, LeNet
from dcgraph.experiments.tasks.addition.task import (
    BEST,
    DEMO,
    PAPER,
    Addition,
    AdditionSettings,
    addition_table,
    labels_of,
    meaning_of,
    symbol_of_digit,
    symbol_use,
)

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


def test_the_law_of_a_sum_is_deepproblogs() -> None:
    """Against the problog package, which the DeepProbLog baseline of the paper stands on."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randint(1, 50, (2, 3), generator=generator).double() / 200
    a, b = torch.cat([weights, 1 - weights.sum(-1, keepdim=True)], -1)  # exact in six digits
    lines = [
        "; ".join(f"{float(p[k]):.6f}::digit({x},{k})" for k in range(4)) + "."
        for x, p in (("x", a), ("y", b))
    ]
    program = "\n".join(
        [*lines, "add(X,Y,Z) :- digit(X,X2), digit(Y,Y2), Z is X2+Y2.", "query(add(x,y,_))."]
    )
    answers = get_evaluatable().create_from(PrologString(program)).evaluate()
    exact = {int(term.args[2]): probability for term, probability in answers.items()}
    ours = log_sum_law(a.log().unsqueeze(0), b.log().unsqueeze(0)).exp()[0]
    assert sorted(exact) == list(range(7))
    for total, probability in exact.items():
        assert float(ours[total]) == pytest.approx(probability, abs=1e-9)


def test_marginalisation_over_three_images_is_enumeration() -> None:
    model = Marginalised(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), digits=3).double()
    images = torch.rand(2, 3, 2, 2, dtype=torch.double)
    p = torch.softmax(model.digit(images.flatten(0, 1)), -1).view(2, 3, 3)
    expected = torch.zeros(2, 7, dtype=torch.double)
    for i in range(3):
        for j in range(3):
            for k in range(3):
                expected[:, i + j + k] += p[:, 0, i] * p[:, 1, j] * p[:, 2, k]
    torch.testing.assert_close(model(images).exp(), expected)


def test_marginalisation_stays_finite_where_probabilities_vanish() -> None:
    left = torch.tensor([[0.0, -300.0, -300.0]], requires_grad=True)
    law = log_sum_law(left.log_softmax(-1), left.log_softmax(-1))
    assert law.isfinite().all() and float(law.detach()[0, 4]) == pytest.approx(-600.0)
    law[0, 4].backward()
    assert left.grad is not None and left.grad.isfinite().all()


def test_the_baseline_sees_the_images_side_by_side() -> None:
    model = Concatenated(2, 19).eval()
    images = torch.rand(3, 2, 28, 28)
    assert model(images).shape == (3, 19)
    assert not torch.allclose(model(images), model(images.flip(1)))


def test_augmentation_moves_images_a_little() -> None:
    image = torch.zeros(1, 28, 28)
    image[0, 10:18, 12:16] = 1.0
    images = image.expand(200, -1, -1)
    assert torch.allclose(jitter(images, 0.0), images, atol=1e-5)
    moved = jitter(images, 1.0)
    assert moved.shape == images.shape and moved.min() >= 0 and moved.max() <= 1.0001
    centre = (moved.sum(1) * torch.arange(28)).sum(-1) / moved.sum((1, 2))
    shift = centre - centre.mean()
    assert 0.5 < float(shift.std()) < 3 and not torch.equal(moved[0], moved[1])


def test_what_symbols_mean_is_what_most_of_their_images_are() -> None:
    """Symbol 0 is rare: it reads one 7 by mistake, and does not become the symbol of 7."""
    data = TASK.data(DEMO)

    labels = labels_of(data, "train")
    assert len(labels) < 2000  # all of them are read in one call

    class ByHand(Adder):
        def read(self, images: torch.Tensor) -> torch.Tensor:
            return torch.cat([torch.tensor([0]), 12 - labels[1:]])

    model = ByHand(nn.Identity(), 4, 13, 3)
    use = symbol_use(model, data, "train", DEMO)
    assert int(use.sum()) == len(labels) and int(use[0].sum()) == 1
    assert symbol_of_digit(use)[:5].tolist() == [12, 11, 10, 9, 8]
    meaning = meaning_of(use)
    assert meaning[8:].tolist() == [4, 3, 2, 1, 0] and (meaning[1:8] == -1).all()
    assert int(meaning[0]) == int(labels[0])


def test_the_addition_table_of_a_network_that_adds() -> None:
    settings = replace(DEMO, summands=2, digits=3)

    class ByHand(Adder):
        def compute(self, symbols: torch.Tensor) -> torch.Tensor:
            return (4 - symbols).sum(-1, keepdim=True)  # symbol 4 - d stands for digit d

    model = ByHand(nn.Identity(), 4, 5, 2)
    cells = addition_table(model, torch.tensor([4, 3, 2]), settings)
    assert cells.shape == (9, 3) and (cells[:, 2] == cells[:, 0] + cells[:, 1]).all()


def test_embedded_data_have_separate_images_and_right_sums() -> None:
    data = TASK.data(DEMO)
    labels = data.shared["labels"]
    images = {split: set(data.table(split)["images"].flatten().tolist()) for split in data.splits}
    assert not images["train"] & images["test"] and not images["train"] & images["validation"]
    for table in map(data.table, data.splits):
        assert torch.equal(labels[table["images"]].sum(-1), table["total"])
        assert int(labels[table["images"]].max()) == 4
    assert data.fingerprint == TASK.data(DEMO).fingerprint
    assert data.fingerprint != TASK.data(replace(DEMO, summands=2)).fingerprint


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"summands": 4}, "2 or 3"),
        ({"digits": 5, "images": "mnist"}, "all 10 digits"),
        ({"model": "cnn", "images": "digits"}, "28x28"),
        ({"augment": -1.0}, "at least 0"),
        ({"digits": 11}, "between 2 and 10"),
    ],
)
def test_impossible_settings(changes: dict[str, object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        replace(PAPER, **changes)  # type: ignore[arg-type]


def test_evaluate_and_predict_on_a_model_of_the_embedded_digits(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = tmp_path / "m.safetensors"
    save_model(path, TASK, DEMO, TASK.model(DEMO), 0.0)
    answer = json.loads(evaluate(model=path))
    assert answer["examples"] == 2000 and 0 <= answer["accuracy"] <= 1
    assert {"digit accuracy", "table accuracy", "decode"} <= set(answer)
    text = predict(model=path, count=2)
    assert text.count("symbol") == 6 and text.count(" + ") == 4
    assert ("right" in text) or ("wrong, it is" in text)


def test_images_in_the_terminal() -> None:
    image = torch.tensor([[0, 9], [9, 9], [0, 0], [0, 9]], dtype=torch.uint8)
    assert drawn(image) == ["▄█", " ▄"]
    assert side_by_side([["ab"], ["cd"]], ["x", "y"]) == "ab  cd\nx   y"


def test_loss_at_the_start_is_that_of_guessing_wildly() -> None:
    batch = TASK.inputs(DEMO, TASK.data(DEMO).shared, _rows(), training=True)
    loss = TASK.loss(TASK.model(DEMO).train(), batch).detach()
    assert loss.shape == (64,) and 0.5 * math.log(13) < float(loss.mean()) < 2 * math.log(13)


def _rows() -> dict[str, torch.Tensor]:
    return {name: table[:64] for name, table in TASK.data(DEMO).table("train").items()}
