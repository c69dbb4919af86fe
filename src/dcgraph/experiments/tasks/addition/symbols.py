"""What the symbols of a trained model stand for, and what it computes from them.

Symbols are learned without digits, so their names are arbitrary. They are named by the digits of
the images that get them.
"""

from __future__ import annotations

import itertools

import torch
from jaxtyping import Int
from torch import Tensor

from ...engine.task import Data
from .baselines import Marginalised
from .data.examples import pixels
from .model.adder import Adder
from .model.columns import ColumnAdder
from .settings import AdditionSettings


@torch.no_grad()
def read_images(
    model: Adder | ColumnAdder | Marginalised, data: Data, split: str, settings: AdditionSettings
) -> Int[Tensor, " images"]:
    """The symbols of all images of a split."""
    chosen = data.constants["images"][_images_of(data, split)]
    return torch.cat([model.read(pixels(part, settings.images)) for part in chosen.split(2000)])


def labels_of(data: Data, split: str) -> Int[Tensor, " images"]:
    """The digits of all images of a split, in the same order."""
    return data.constants["labels"][_images_of(data, split)]


def _images_of(data: Data, split: str) -> Tensor:
    """Every image of a split once."""
    images: Tensor = torch.cat([t["images"].flatten() for t in data.tables(split)]).unique()
    return images


def symbol_use(
    model: Adder | ColumnAdder | Marginalised, data: Data, split: str, settings: AdditionSettings
) -> Int[Tensor, "symbols digits"]:
    """How many images of each digit got each symbol.

    Symbols are learned without digits, so their names are arbitrary; this is how they are read.
    """
    symbols, labels = read_images(model, data, split, settings), labels_of(data, split)
    rows = settings.symbols or settings.numbers
    use = torch.zeros(rows, 10, dtype=torch.long, device=symbols.device)
    return use.index_put_((symbols, labels), torch.ones_like(labels), accumulate=True)


def meaning_of(use: Int[Tensor, "symbols digits"]) -> Int[Tensor, " symbols"]:
    """The digit that each symbol stands for: the commonest one, or -1 if no image got the symbol.

    >>> meaning_of(torch.tensor([[9, 1], [0, 0], [0, 1]]))
    tensor([ 0, -1,  1])
    """
    return use.argmax(-1).masked_fill(use.sum(-1) == 0, -1)


def symbol_of_digit(use: Int[Tensor, "symbols digits"]) -> Int[Tensor, " digits"]:
    """The symbol that stands for each digit: the one most of its images got.

    >>> symbol_of_digit(torch.tensor([[9, 1], [0, 0], [0, 8]]))
    tensor([0, 2])
    """
    return use.argmax(0)


@torch.no_grad()
def addition_table(
    model: Adder, symbol_of: Int[Tensor, " digits"], settings: AdditionSettings
) -> Int[Tensor, "cells columns"]:
    """What the model computes for every choice of digits: rows of the digits, then its answer.

    The answer is a number right away, because the last layer is trained on sums. Of more than four
    summands there are too many choices: 10,000 are drawn.
    """
    if settings.summands <= 4:
        every = list(itertools.product(range(settings.values), repeat=settings.summands))
        digits = torch.tensor(every)
    else:
        drawn = torch.Generator().manual_seed(0)
        digits = torch.randint(settings.values, (10_000, settings.summands), generator=drawn)
    digits = digits.to(symbol_of.device)
    return torch.cat([digits, model.compute(symbol_of[digits])[:, -1:]], -1)
