"""What a column adder has learned: its cell, entry by entry, and sums of numbers of any length."""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

from ...engine.metrics import Metric, Metrics
from ...engine.task import Data
from .data import lists
from .data.examples import digits_of_sums
from .model.columns import ColumnAdder
from .settings import AdditionSettings
from .symbols import labels_of, read_images

LENGTHS = (1, 2, 4, 15, 100, 1000)
"""Digits of the numbers that are added at test."""


def measured(
    model: ColumnAdder, data: Data, settings: AdditionSettings, meaning: Int[Tensor, " symbols"]
) -> Metrics:
    """Whether the cell is exact, and how many sums of each length are right.

    Each test image is in one sum of a length. ``added right`` leaves reading aside: it is the share
    of sums that are those of the digits that were read.
    """
    symbols, labels = read_images(model, data, "test", settings), labels_of(data, "test")
    table = model.table()
    wrong, entries = table.wrong_entries(meaning)
    found: Metrics = {
        Metric("symbols in use", decoder=None): float((meaning >= 0).sum()),
        Metric("cell entries", decoder=None): float(entries),
        Metric("cell entries wrong", decoder=None): float(wrong),
    }
    for length in LENGTHS:
        rows = lists.tuples(len(symbols), 2 * length, seed=0).to(symbols.device)
        digits, _ = table.add(*symbols[rows].chunk(2, 1))
        for name, truth in (("accuracy", labels), ("added right", meaning[symbols])):
            right = (digits == digits_of_sums(truth[rows])).all(-1)
            found[Metric(name, length=length)] = float(right.float().mean())
    return found
