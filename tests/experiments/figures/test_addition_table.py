"""What a model has learned of addition, in a picture."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dcgraph.experiments import figures
from dcgraph.experiments.engine import Data
from dcgraph.experiments.figures import addition_table
from dcgraph.experiments.tasks.addition import commands
from dcgraph.experiments.tasks.addition.data import images, lists
from dcgraph.experiments.tasks.addition.model.adder import Adder
from dcgraph.experiments.tasks.addition.settings import AdditionSettings
from dcgraph.experiments.tasks.addition.task import Addition
from local_files import require
from pictures import check_figure, png_size, wrong_share

DIGITS = AdditionSettings(images="digits")

SYMBOLS = torch.tensor([4, 11, 0, 9, 2, 18, 7, 5, 13, 1])  # of the digits 0 to 9


class ByHand(Adder):
    """Reads the digit from the first pixel and adds as given: what a network may have learned."""

    def __init__(self, wrong: dict[tuple[int, int], int]) -> None:
        super().__init__(nn.Identity(), 4, 19, 2)
        self.wrong = wrong

    def read(self, images: Tensor) -> Tensor:
        return SYMBOLS[(16 * images[:, 0, 0]).round().long()]

    def compute(self, symbols: Tensor) -> Tensor:
        digits = (symbols.unsqueeze(-1) == SYMBOLS).long().argmax(-1)
        pairs = [(int(a), int(b)) for a, b in digits]
        return torch.tensor([[self.wrong.get(pair, sum(pair))] for pair in pairs])


def marked_images(digits: int = 10, copies: int = 3) -> Data:
    """Images of noise, the first pixel of each its label."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(digits).repeat(copies)
    pixels = torch.randint(17, (len(labels), 8, 8), dtype=torch.uint8, generator=generator)
    pixels[:, 0, 0] = labels
    pairs = torch.arange(len(labels)).view(-1, 2)
    rows = {"images": pairs, "total": labels[pairs].sum(-1)}
    return Data({"train": rows, "test": rows}, "made up", {"images": pixels, "labels": labels})


def described(seed: int, wrong: dict[tuple[int, int], int]) -> dict[str, Any]:
    return addition_table.describe(ByHand(wrong), DIGITS, marked_images(), seed)


def test_addition_table_of_a_network_that_adds() -> None:
    numbers = described(0, wrong={})
    assert numbers["symbols"] == SYMBOLS.tolist()
    assert [numbers["meaning"][symbol] for symbol in SYMBOLS] == list(range(10))
    assert sorted(numbers["meaning"])[:9] == [-1] * 9
    assert numbers["table"] == [[a + b for b in range(10)] for a in range(10)]
    assert numbers["table_accuracy"] == numbers["digit_accuracy"] == 1
    for digit, example in enumerate(numbers["examples"]):
        assert example["digit"] == example["read_as"] == example["pixels"][0][0] == digit
        assert example["symbol"] == SYMBOLS[digit]


def test_addition_table_shows_what_is_wrong() -> None:
    numbers = described(0, wrong={(2, 9): 12, (9, 9): 0})
    assert numbers["table"][2][9] == 12 and numbers["table"][9][2] == 11
    assert numbers["table"][9][9] == 0
    assert numbers["table_accuracy"] == pytest.approx(0.98)


@pytest.mark.parametrize(
    ("changes", "error"), [({"summands": 3}, "summands=3"), ({"model": "deepproblog"}, "symbols")]
)
def test_addition_table_of_another_model(
    changes: dict[str, Any], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(DIGITS, **changes)
    model = Addition().model(settings)
    monkeypatch.setattr(addition_table, "load", lambda task, path: (model, settings))
    with pytest.raises(ValueError, match=error):
        addition_table.compute()


def test_addition_table_marks_only_wrong_cells(tmp_path: Path) -> None:
    path = tmp_path / "picture"
    shares = []
    for wrong in ({}, {(2, 9): 12}, {(2, 9): 12, (0, 0): 5, (9, 9): 0}):
        addition_table.draw(described(0, wrong), path)
        shares.append(wrong_share(path))
    none, one, three = shares
    assert none == 0 and one > 0
    assert three == pytest.approx(3 * one, rel=0.2)


def test_addition_table_of_the_shipped_model(tmp_path: Path) -> None:
    if not (files(commands.__package__) / commands.SHIPPED).is_file():
        pytest.skip(f"the package has no {commands.SHIPPED}")
    require(*images.MNIST, *lists.PAIRS)
    picture, data = figures.make("addition-table", tmp_path)
    assert png_size(picture)[0] == 1440
    numbers = json.loads(data.read_text())
    assert numbers["test_images"] == 10_000
    assert numbers["digit_accuracy"] > 0.98
    assert [example["read_as"] for example in numbers["examples"]] == list(range(10))


def test_the_picture_is_made_of_the_seed_only(tmp_path: Path) -> None:
    check_figure("addition-table", lambda seed: described(seed, wrong={(3, 4): 8}), tmp_path)
