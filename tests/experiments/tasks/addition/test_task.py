"""The addition task as the engine sees it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from dcgraph.experiments.engine import Data
from dcgraph.experiments.engine.metrics import Metric
from dcgraph.experiments.tasks.addition.baselines import Concatenated
from dcgraph.experiments.tasks.addition.model.adder import Adder
from dcgraph.experiments.tasks.addition.settings import DEMO, PAPER
from dcgraph.experiments.tasks.addition.task import Addition

TASK = Addition()


def test_loss_at_the_start_is_that_of_guessing_wildly() -> None:
    data = TASK.data(DEMO)
    rows = {name: table[:64] for name, table in data.table("train").items()}
    batch = data.batch(rows, training=True)
    loss = TASK.loss(TASK.model(DEMO).train(), batch).detach()
    assert loss.shape == (64,) and 0.5 * math.log(13) < float(loss.mean()) < 2 * math.log(13)


def test_a_sum_counts_only_if_it_is_right() -> None:
    class Known(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return nn.functional.one_hot(images[:, 0, 0, 0].long(), 5).float()

    images = torch.zeros(4, 2, 1, 1)
    images[:, 0, 0, 0] = torch.tensor([0, 1, 2, 3])
    batch = {"images": images, "total": torch.tensor([0, 1, 3, 2])}
    assert TASK.metrics(Known(), batch)["accuracy"].tolist() == [1, 1, 0, 0]  # too small, too large


class Reader(Adder):
    """Symbol 4 - m for an image of brightness m; adds with one error."""

    def __init__(self) -> None:
        super().__init__(nn.Identity(), 4, 5, 2)

    def read(self, images: Tensor) -> Tensor:
        return 4 - (16 * images[:, 0, 0]).round().long()

    def compute(self, symbols: Tensor) -> Tensor:
        right = (4 - symbols).sum(-1, keepdim=True)
        return torch.where(right == 4, 3, right)


def test_symbols_are_named_by_training_images_and_read_on_test_images() -> None:
    """Brightness is the digit in training; of six test images two are darker than their digit."""
    settings = replace(DEMO, summands=2, values=3)
    brightness = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 1])
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, 2, 2, 0, 2, 1])
    constants = {"images": brightness.to(torch.uint8).view(-1, 1, 1), "labels": labels}
    splits = {
        split: {"images": rows, "total": labels[rows].sum(-1)}
        for split, rows in (
            ("train", torch.arange(6).view(3, 2)),
            ("test", torch.arange(6, 12).view(3, 2)),
        )
    }
    metrics = TASK.final_metrics(Reader(), settings, Data(splits, "made up", constants), {})
    assert metrics == {
        Metric("digit accuracy"): pytest.approx(4 / 6),
        Metric("addition table accuracy"): pytest.approx(8 / 9),  # 2 + 2 is wrong
    }


def test_a_model_that_reads_no_digits_has_no_other_metrics() -> None:
    settings = replace(PAPER, model="cnn")
    model = TASK.model(settings)
    assert isinstance(model, Concatenated)
    assert TASK.final_metrics(model, settings, Data({}, "none"), {}) == {}
