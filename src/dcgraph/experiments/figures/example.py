"""The upper half of the paper's Figure 1 with a real model: two images, two symbols, their sum.

The shipped model reads a pair of test images. All that is drawn comes from a trace of that call and
from the model itself. Two pairs are shown, and a seed chooses both: one from all test pairs, one
from those with a wrong answer. Because the model computes with symbols, the place of an error can
be read off: an image that got the symbol of another digit, or symbols that were added wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from ...inspect import trace
from ..engine.task import Data
from ..tasks.addition.commands import load
from ..tasks.addition.data.examples import examples, pixels
from ..tasks.addition.model.adder import Adder
from ..tasks.addition.settings import AdditionSettings
from ..tasks.addition.symbols import meaning_of, symbol_use
from ..tasks.addition.task import Addition
from .diagram import BAR, CHOSEN, G_COLOUR, H_COLOUR, INK, arrow, box, canvas, write
from .style import WRONG, page

# All places and sizes are in inches. An example is drawn around its middle line.
_WIDTH = 7.2
_EXAMPLE = 1.98  # height of one example with its title
_HEADS = 0.3  # height of the names of the columns
_LANE = 0.41  # from the middle line to that of an image
_IMAGE, _G, _SYMBOLS, _SYMBOL, _ADD, _SUMS, _ANSWER = 0.46, 1.11, 2.22, 3.62, 4.52, 5.66, 6.8
_SIDE = 0.62  # of an image
_CHART = 1.42  # width of all bars together
_BOX, _ADD_BOX, _ANSWER_BOX = 0.86, 0.44, 0.5  # widths
_GAP = 0.02  # around arrows
_NEAR = 3  # names of bars closer than this would touch
_NAMED = 0.05  # from this probability on a bar has its name


def compute(seed: int = 0) -> dict[str, Any]:
    """What the model of the package does with two pairs of test images.

    The pairs are chosen by ``seed`` only: one from all, one from those that the model gets wrong.
    Needs MNIST, found as for training.
    """
    model, settings = load(Addition(), None)
    if settings.summands != 2:
        raise ValueError(f"summands={settings.summands}, but the figure shows a model that adds 2.")
    if not isinstance(model, Adder):
        raise ValueError(f"model={settings.model!r} has no symbols; the figure needs 'discrete'.")
    return describe(model, settings, examples(settings), seed)


@torch.no_grad()
def describe(model: Adder, settings: AdditionSettings, data: Data, seed: int) -> dict[str, Any]:
    """The same for any model of two summands in eval mode, ready for JSON.

    A model without errors has one example.
    """
    meaning = meaning_of(symbol_use(model, data, "train", settings))
    errors = _errors(model, settings, data)
    generator = torch.Generator().manual_seed(seed)
    pairs = [int(torch.randint(data.size("test"), (), generator=generator))]
    if len(errors):
        pairs.append(int(errors[torch.randint(len(errors), (), generator=generator)]))
    return {
        "figure": "example",
        "seed": seed,
        "pairs": data.size("test"),
        "errors": len(errors),
        "examples": [_example(model, settings, data, meaning, pair) for pair in pairs],
    }


def _errors(model: Adder, settings: AdditionSettings, data: Data) -> Int[Tensor, " errors"]:
    """The test pairs with a wrong answer."""
    rows, totals = data.table("test")["images"], data.table("test")["total"]
    parts = [pixels(data.constants["images"][part], settings.images) for part in rows.split(1000)]
    answers = torch.cat([model(images).argmax(-1) for images in parts])
    return (answers != totals).nonzero().flatten()


def _example(
    model: Adder,
    settings: AdditionSettings,
    data: Data,
    meaning: Int[Tensor, " symbols"],
    pair: int,
) -> dict[str, Any]:
    rows = data.table("test")["images"][pair]
    raw, labels = data.constants["images"][rows], data.constants["labels"][rows]
    images = pixels(raw, settings.images).unsqueeze(0)
    with trace(model) as steps:
        (sums,) = model(images).softmax(-1)
    (step,) = steps  # both images are read in one call
    theta = model.symbol.logits(model.encoded(images))
    readings = [
        {
            "pixels": raw[i].tolist(),
            "label": int(labels[i]),
            "probabilities": _rounded(theta[i, 0].softmax(-1)),
            "symbol": int(step.index[i, 0]),
            "probability": round(float(step.probability[i, 0]), 6),
            "digit": int(meaning[step.index[i, 0]]),  # -1 if no training image got the symbol
        }
        for i in range(len(rows))
    ]
    return {
        "pair": pair,
        "images": readings,
        "probabilities": _rounded(sums),
        "answer": int(sums.argmax()),
        "total": int(data.table("test")["total"][pair]),
    }


def _rounded(probabilities: Tensor) -> list[float]:
    return [round(share, 6) for share in probabilities.tolist()]


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Draw what :func:`compute` returned."""
    examples = numbers["examples"]
    height = len(examples) * _EXAMPLE + _HEADS
    chosen_from = (f"all {numbers['pairs']:,} test pairs", f"the {numbers['errors']:,} wrong ones")
    with page(path, _WIDTH, height) as figure:
        axes = canvas(figure)
        for i, (example, pairs) in enumerate(zip(examples, chosen_from, strict=False)):
            top = height - 0.16 - i * _EXAMPLE - (_HEADS if i else 0)
            title = f"({'ab'[i]}) drawn from {pairs}: {story(example)}"
            write(axes, 0.15, top, title, ha="left", size=8.5)
            if i == 0:
                _write_heads(axes, top - 0.32)
            _draw_example(axes, height - (i + 0.5) * _EXAMPLE - _HEADS - 0.1, example)


def story(example: dict[str, Any]) -> str:
    """In words, how the answer came about."""
    read = [image["digit"] for image in example["images"]]
    truth = [image["label"] for image in example["images"]]
    wrong = [i for i in range(len(read)) if read[i] != truth[i]]
    if not wrong:
        added = "and added right" if example["answer"] == sum(read) else "but added wrong"
        return f"both digits are read right {added}"
    who = ("the first image is", "the second image is")[wrong[0]] if len(wrong) == 1 else "both are"
    names = " and ".join(_name(read[i]) for i in wrong)
    reading = f"{who} read as {names}, not {' and '.join(str(truth[i]) for i in wrong)}"
    if -1 in read:
        return f"{reading}: a symbol that no training image gets"
    added = "and" if example["answer"] == sum(read) else "and added wrong:"
    return f"{reading}, {added} {' + '.join(map(str, read))} = {example['answer']}"


def _name(digit: int) -> str:
    return "?" if digit < 0 else str(digit)


def _write_heads(axes: Axes, y: float) -> None:
    heads = (
        (_IMAGE, "image"),
        (_SYMBOLS, r"softmax$(\theta)$ over the symbols"),
        (_SYMBOL, "symbol $z$"),
        (_SUMS, "softmax over the sums"),
        (_ANSWER, "answer"),
    )
    for x, text in heads:
        write(axes, x, y, text, color="0.35")


def _draw_example(axes: Axes, y: float, example: dict[str, Any]) -> None:
    symbol_end, add, sums = _SYMBOL + _BOX / 2, _ADD_BOX / 2, _CHART / 2 + _GAP
    for image, up in zip(example["images"], (_LANE, -_LANE), strict=True):
        _draw_reading(axes, y + up, image)
        _connect(axes, y + up, symbol_end, _ADD - add)
        write(axes, (symbol_end + _ADD - add) / 2 - _GAP, y + up + 0.12, "$h$", size=9)
    box(axes, _ADD, y, _ADD_BOX, 2 * _LANE + 0.5, "ADD", size=9)
    _connect(axes, y, _ADD + add, _SUMS - sums)
    _draw_chart(axes, _SUMS, y, example["probabilities"], example["answer"])
    _connect(axes, y, _SUMS + sums, _ANSWER - _ANSWER_BOX / 2)
    right = example["answer"] == example["total"]
    words = (str(example["answer"]), "right" if right else f"not {example['total']}")
    _draw_verdict(axes, _ANSWER, y, _ANSWER_BOX, words, right, "white")


def _draw_reading(axes: Axes, y: float, image: dict[str, Any]) -> None:
    """From an image to its symbol."""
    half, g, chart = _SIDE / 2, 0.16, _CHART / 2 + _GAP
    _draw_image(axes, y, image["pixels"])
    _connect(axes, y, _IMAGE + half, _G - g)
    box(axes, _G, y, 2 * g, 0.5, "$g$", G_COLOUR, size=10)
    _connect(axes, y, _G + g, _SYMBOLS - chart)
    _draw_chart(axes, _SYMBOLS, y, image["probabilities"], image["symbol"])
    _connect(axes, y, _SYMBOLS + chart, _SYMBOL - _BOX / 2)
    right = image["digit"] == image["label"]
    meaning = f"means {_name(image['digit'])}" + ("" if right else f", not {image['label']}")
    words = (str(image["symbol"]), meaning)
    _draw_verdict(axes, _SYMBOL, y, _BOX, words, right, H_COLOUR)


def _draw_image(axes: Axes, y: float, values: list[list[int]]) -> None:
    left, bottom = _IMAGE - _SIDE / 2, y - _SIDE / 2
    limits = axes.axis()
    axes.imshow(values, cmap="gray_r", extent=(left, left + _SIDE, bottom, bottom + _SIDE))
    axes.axis(limits)  # imshow moved them
    border = Rectangle((left, bottom), _SIDE, _SIDE, fill=False, edgecolor=INK, linewidth=0.7)
    axes.add_patch(border)


def _connect(axes: Axes, y: float, left: float, right: float) -> None:
    arrow(axes, (left + _GAP, y), (right - _GAP, y))


def _draw_chart(axes: Axes, x: float, y: float, shares: list[float], chosen: int) -> None:
    """Standing bars around (x, y); the chosen one is dark."""
    step, height = _CHART / len(shares), 0.38
    left, base = x - _CHART / 2, y - 0.19
    for i, share in enumerate(shares):
        colour = CHOSEN if i == chosen else BAR
        corner = (left + (i + 0.1) * step, base)
        axes.add_patch(Rectangle(corner, 0.8 * step, height * share, facecolor=colour))
    axes.plot([left, left + _CHART], [base, base], color=INK, linewidth=0.7)
    for i in _named(shares, chosen):
        style = {"weight": "bold"} if i == chosen else {"color": "0.35"}
        write(axes, left + (i + 0.5) * step, base - 0.08, str(i), size=7, **style)
    top = base + height * shares[chosen]
    write(axes, left + (chosen + 0.5) * step, top + 0.07, _percent(shares[chosen]), size=7)


def _named(shares: list[float], chosen: int) -> list[int]:
    """The bars to name, by importance: the chosen one, then large ones, then the ends."""
    large = sorted(range(len(shares)), key=lambda i: -shares[i])
    wanted = [chosen, *(i for i in large if shares[i] >= _NAMED), 0, len(shares) - 1]
    named: list[int] = []
    for i in wanted:
        if all(abs(i - other) >= _NEAR for other in named):
            named.append(i)
    return named


def _percent(share: float) -> str:
    """A softmax is never quite 100%."""
    return ">99.9%" if share >= 0.9995 else f"{share:.1%}"


def _draw_verdict(
    axes: Axes, x: float, y: float, width: float, words: tuple[str, str], right: bool, colour: str
) -> None:
    """A number and what is to be said about it; white on dark, if wrong."""
    ink = "black" if right else "white"
    box(axes, x, y, width, 0.5, "", colour if right else WRONG)
    write(axes, x, y + 0.09, words[0], size=11, weight="bold", color=ink)
    write(axes, x, y - 0.12, words[1], size=7, color=ink)
