"""What the shipped model has learned of addition: a symbol for every digit, and a table of sums.

The model was trained on images and sums only. No digit was ever named, so the symbols it chose
have no order; which digit a symbol stands for is read from the labels of the training images
afterwards. The table is what the network computes from the symbols, with no image involved.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from ..engine.task import Data
from ..tasks.addition.commands import load
from ..tasks.addition.data.examples import examples
from ..tasks.addition.model.adder import Adder
from ..tasks.addition.settings import AdditionSettings
from ..tasks.addition.symbols import (
    addition_table,
    labels_of,
    meaning_of,
    read_images,
    symbol_of_digit,
    symbol_use,
)
from ..tasks.addition.task import Addition
from .style import WRONG, heat, page

_UNKNOWN = -1  # the meaning of a symbol that no training image got
_READING_WIDTH = 4.4  # of the left panel, in rows of the table
_TITLE_PAD = 44  # points: above the names of the columns
_IMAGE = 0.42  # half the side of an image, in the same unit


def compute(seed: int = 0) -> dict[str, Any]:
    """What the model of the package reads and adds; ``seed`` chooses the images to show.

    Needs MNIST, found as for training.
    """
    model, settings = load(Addition(), None)
    if settings.summands != 2:
        raise ValueError(f"summands={settings.summands}, but a table needs a model that adds 2.")
    if not isinstance(model, Adder):
        raise ValueError(f"model={settings.model!r} has no symbols; a table needs 'discrete'.")
    return describe(model, settings, examples(settings), seed)


def describe(model: Adder, settings: AdditionSettings, data: Data, seed: int) -> dict[str, Any]:
    """The same for any model of two summands, ready for JSON.

    Of every digit one test image is shown, drawn from those with the digit's commonest reading.
    """
    use = symbol_use(model, data, "train", settings)
    meaning, symbol_of = meaning_of(use), symbol_of_digit(use)
    symbols, labels = read_images(model, data, "test", settings), labels_of(data, "test")
    digits = settings.values
    answers = addition_table(model, symbol_of, settings)[:, -1].view(digits, digits)
    right = answers == _sums(digits)
    return {
        "figure": "addition-table",
        "seed": seed,
        "meaning": meaning.tolist(),
        "symbols": symbol_of[:digits].tolist(),
        "table": answers.tolist(),
        "table_accuracy": right.double().mean().item(),
        "test_images": len(labels),
        "digit_accuracy": (meaning[symbols] == labels).double().mean().item(),
        "examples": _examples(symbols, labels, meaning, data, digits, seed),
    }


def _sums(digits: int) -> Tensor:
    return torch.arange(digits).unsqueeze(1) + torch.arange(digits)


def _examples(
    symbols: Tensor, labels: Tensor, meaning: Tensor, data: Data, digits: int, seed: int
) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    images = data.constants["images"][
        data.table("test")["images"].unique()
    ]  # as symbols and labels
    examples = []
    for digit in range(digits):
        commonest = symbols[labels == digit].mode().values
        candidates = ((labels == digit) & (symbols == commonest)).nonzero().flatten()
        chosen = candidates[torch.randint(len(candidates), (), generator=generator)]
        example = {
            "digit": digit,
            "symbol": int(commonest),
            "read_as": int(meaning[commonest]),
            "pixels": images[chosen].tolist(),
        }
        examples.append(example)
    return examples


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Draw what :func:`compute` returned."""
    size = len(numbers["table"])
    with page(path, width=7.2, height=4.6) as figure:
        reading, adding = figure.subplots(1, 2, width_ratios=[_READING_WIDTH, size])
        _draw_reading(reading, numbers)
        _draw_table(adding, numbers)
        for axes, width in ((reading, _READING_WIDTH), (adding, size)):
            axes.set_xlim(-0.5, width - 0.5)
            axes.set_ylim(size - 0.5, -0.5)  # downwards; both panels have rows of the same height
            axes.set_aspect("equal")
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.set_xticks([])
            axes.set_yticks([])
        wrong = ";  white on red: wrong, and what is right" if _has_errors(numbers) else ""
        figure.supxlabel(
            f"(a) one of each digit, rate of {numbers['test_images']:,} test images;  "
            f"grey numbers: symbols, as learned;  blue: the larger, the darker{wrong}",
            fontsize=8,
        )


def _has_errors(numbers: dict[str, Any]) -> bool:
    """Whether a number in the picture is wrong."""
    read = all(example["read_as"] == example["digit"] for example in numbers["examples"])
    return not read or numbers["table"] != _sums(len(numbers["table"])).tolist()


def _draw_reading(axes: Axes, numbers: dict[str, Any]) -> None:
    axes.set_title(f"(a) reading: {numbers['digit_accuracy']:.2%} right", pad=_TITLE_PAD)
    for x, name in ((0, "image"), (1.7, "symbol"), (3.4, "digit")):
        _write(axes, x, -0.8, name)
    for row, example in enumerate(numbers["examples"]):
        sides = (-_IMAGE, _IMAGE, row + _IMAGE, row - _IMAGE)
        axes.imshow(example["pixels"], cmap="gray_r", extent=sides)
        _write(axes, 1.7, row, str(example["symbol"]), color="0.35")
        _mark_if_wrong(axes, 3.4, row, example["read_as"], example["digit"])
        for x in (0.8, 2.5):
            _write(axes, x, row, "→", color="0.35")


def _mark_if_wrong(axes: Axes, x: int | float, y: int, answer: int, truth: int) -> None:
    """A number in a cell; a wrong one white on red, with the right one beneath."""
    shown = "?" if answer == _UNKNOWN else str(answer)
    if answer == truth:
        _write(axes, x, y, shown, size=9)
        return
    axes.add_patch(Rectangle((x - 0.47, y - 0.47), 0.94, 0.94, facecolor=WRONG))
    _write(axes, x, y - 0.13, shown, size=9, color="white", weight="bold")
    _write(axes, x, y + 0.26, f"not {truth}", size=5.5, color="white")


def _draw_table(axes: Axes, numbers: dict[str, Any]) -> None:
    size = len(numbers["table"])
    sums = _sums(size).tolist()
    share = numbers["table_accuracy"]
    right = f"{round(share * size**2)} of {size**2} cells right ({share:.0%})"
    axes.set_title(f"(b) adding: {right}", pad=_TITLE_PAD)
    axes.imshow(sums, cmap=heat(), vmin=0, vmax=1.3 * sums[-1][-1])  # light, under black numbers
    for row, answers in enumerate(numbers["table"]):
        for column, answer in enumerate(answers):
            _mark_if_wrong(axes, column, row, answer, sums[row][column])
    for digit, symbol in enumerate(numbers["symbols"]):
        name = str(symbol)
        _write(axes, -1.15, digit, str(digit), size=9, weight="bold")
        _write(axes, -0.72, digit, name, size=6.5, color="0.35")
        _write(axes, digit, -1.15, str(digit), size=9, weight="bold")
        _write(axes, digit, -0.72, name, size=6.5, color="0.35")
    _write(axes, size / 2 - 0.5, -1.7, "second digit")
    _write(axes, -1.7, size / 2 - 0.5, "first digit", rotation=90)


def _write(axes: Axes, x: int | float, y: int | float, text: str, **style: Any) -> None:
    axes.text(x, y, text, ha="center", va="center", **style)
