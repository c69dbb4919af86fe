"""What is said of the symbols of a model for addition."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from dcgraph.experiments.tasks.addition.model.adder import Adder
from dcgraph.experiments.tasks.addition.settings import DEMO
from dcgraph.experiments.tasks.addition.symbols import (
    addition_table,
    labels_of,
    meaning_of,
    symbol_of_digit,
    symbol_use,
)
from dcgraph.experiments.tasks.addition.task import Addition

TASK = Addition()


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
    settings = replace(DEMO, summands=2, values=3)

    class ByHand(Adder):
        def compute(self, symbols: torch.Tensor) -> torch.Tensor:
            return (4 - symbols).sum(-1, keepdim=True)  # symbol 4 - d stands for digit d

    model = ByHand(nn.Identity(), 4, 5, 2)
    cells = addition_table(model, torch.tensor([4, 3, 2]), settings)
    assert cells.shape == (9, 3) and (cells[:, 2] == cells[:, 0] + cells[:, 1]).all()
