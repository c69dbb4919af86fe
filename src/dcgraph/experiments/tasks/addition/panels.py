"""What the page of a run shows of an addition model: sums it read, and the tables it learned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Int
from torch import Tensor, nn

from ....inspect import trace
from ...engine.panels import Examples, Grid, Panel, Shown
from ...engine.task import Data
from . import columns
from .baselines import Marginalised
from .data.examples import pixels
from .model.adder import Adder
from .model.columns import ColumnAdder
from .settings import AdditionSettings
from .symbols import meaning_of, symbol_of_digit, symbol_use

_FIRST = 4  # examples from the beginning of the test set
_WRONG = 4  # and errors among the first _LOOKED_AT
_LOOKED_AT = 1000
_COUNTED = 4000  # training examples by which the symbols of partial sums are named


def of_model(model: nn.Module, settings: AdditionSettings, data: Data) -> Sequence[Panel]:
    """Examples for every model; tables for those that add symbols."""
    if isinstance(model, ColumnAdder):
        return columns.panels(model, settings, data)
    names = _Names(model, settings, data)
    examples = _examples(model, settings, data, names)
    if not isinstance(model, Adder) or settings.modulo:  # whose tables would not be of sums
        return (examples,)
    return (examples, *_tables(model, settings, names))


class _Names:
    """What the symbols of a model stand for: a digit after reading, a number after an addition.

    Symbols are learned without names; they are named by what they commonly stand for in training.
    """

    def __init__(self, model: nn.Module, settings: AdditionSettings, data: Data) -> None:
        self.digits = torch.arange(10)
        self.sums: list[Tensor] = []
        self.symbol_of: Tensor | None = None
        if not isinstance(model, Adder):
            return
        use = symbol_use(model, data, "train", settings)
        self.digits, self.symbol_of = meaning_of(use), symbol_of_digit(use)
        rows = data.tables("train")[-1]["images"][:_COUNTED]  # the longest
        truths = data.constants["labels"][rows].cumsum(-1)
        _, chosen = _run(model, pixels(data.constants["images"][rows], settings.images))
        self.sums = [
            meaning_of(_counts(symbols, truths[:, k + 1], model.of_sums.categories))
            for k, symbols in enumerate(chosen[1:])
        ]


def _counts(symbols: Tensor, numbers: Tensor, rows: int) -> Int[Tensor, "symbols numbers"]:
    use = torch.zeros(rows, int(numbers.max()) + 1, dtype=torch.long)
    return use.index_put_((symbols, numbers), torch.ones_like(numbers), accumulate=True)


@torch.no_grad()
def _run(model: Adder, images: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The answers, and what each call of the node chose: first of all images, then of a sum each.

    Of the images, the choices are [examples, summands]; of a sum [examples].
    """
    with trace(model) as steps:
        answers = model(images).argmax(-1)
    read, *sums = (step.index for step in steps)
    return answers, [read.T, *(choice.flatten() for choice in sums)]


def _examples(model: nn.Module, settings: AdditionSettings, data: Data, names: _Names) -> Examples:
    split = {name: table[:_LOOKED_AT] for name, table in data.table("test").items()}
    raw = data.constants["images"][split["images"]]
    images, truths = pixels(raw, settings.images), split["total"]
    chosen: list[Tensor] = []
    with torch.no_grad():
        if isinstance(model, Adder):
            answers, chosen = _run(model, images)
        else:
            answers = model(images).argmax(-1)
            if isinstance(model, Marginalised):
                chosen = [model.read(images.flatten(0, 1)).view(raw.shape[:2])]
    wrong = (answers != truths).nonzero().flatten().tolist()
    errors = [k for k in wrong if k >= _FIRST][:_WRONG]
    named = isinstance(model, Adder)
    rows = []
    for k in [*range(min(_FIRST, len(raw))), *errors]:
        labels = data.constants["labels"][split["images"][k]].tolist()
        row = [
            _image(image, chosen[0][k, i] if chosen else None, labels[i], names, named)
            for i, image in enumerate(raw[k])
        ]
        for step, (symbols, meaning) in enumerate(zip(chosen[1:], names.sums, strict=True)):
            # After the images that were added so far, and the earlier partial sums.
            so_far = _partial_sum(int(symbols[k]), meaning, sum(labels[: step + 2]))
            row.insert(2 * step + 2, so_far)
        right = bool(answers[k] == truths[k])
        verdict = "sum" if right else f"sum; it is {int(truths[k])}"
        row.append(Shown(verdict, f"= {int(answers[k])}", right=right))
        rows.append(tuple(row))
    note = (
        f"The first {_FIRST} of the test set, then the first errors: {len(wrong)} of its first "
        f"{len(raw)} examples are wrong. {_legend(model, settings.summands > 2)}"
    )
    return Examples("Sums it read", note, tuple(rows))


def _legend(model: nn.Module, chained: bool) -> str:
    if isinstance(model, Adder):
        chain = " After an arrow, the sum so far: a symbol too." if chained else ""
        return (
            "Under an image stands the symbol it got, and the digit that this symbol commonly "
            f"stands for.{chain}"
        )
    if isinstance(model, Marginalised):
        return "Under an image stands the digit it was read as."
    return "This model reads no digits."


def _image(image: Tensor, symbol: Tensor | None, label: int, names: _Names, named: bool) -> Shown:
    if symbol is None:
        return Shown("", f"image of a {label}", image)
    meaning = int(names.digits[symbol])
    read = "?" if meaning < 0 else str(meaning)
    caption = f"symbol {int(symbol)}: {read}" if named else read
    return Shown(caption, f"image of a {label}", image, right=meaning == label)


def _partial_sum(symbol: int, meaning: Tensor, truth: int) -> Shown:
    number = int(meaning[symbol])
    text = "?" if number < 0 else str(number)
    return Shown(f"symbol {symbol}", f"\u2192 {text}", right=number == truth)


def _tables(model: Adder, settings: AdditionSettings, names: _Names) -> Iterable[Grid]:
    """What the model computes from the symbols only, for all digits; no image is involved."""
    assert names.symbol_of is not None
    digits, symbol_of = range(settings.values), names.symbol_of
    pairs = torch.cartesian_prod(torch.arange(settings.values), torch.arange(settings.values))
    with torch.no_grad():
        if settings.summands == 2:
            answers = model.compute(symbol_of[pairs])[:, -1]
            title, note = "The addition table it learned", "The answer for every pair of digits."
        else:
            others = torch.zeros(len(pairs), settings.summands - 2, dtype=torch.long)
            first = model.compute(symbol_of[torch.cat([pairs, others], -1)])[:, 0]
            answers = names.sums[0][first]
            title = "The first addition it learned"
            note = "What the symbol after the first addition commonly stands for; ?: never used."
    cells = answers.view(settings.values, settings.values).tolist()
    yield Grid(
        title,
        f"{note} Wrong ones are marked.",
        "a + b",
        tuple(map(str, digits)),
        tuple(map(str, digits)),
        tuple(tuple(_cell(cells[a][b], a + b) for b in digits) for a in digits),
    )
    if settings.summands == 3:
        yield _second_addition(model, settings, symbol_of)


def _second_addition(model: Adder, settings: AdditionSettings, symbol_of: Tensor) -> Grid:
    digits, sums = range(settings.values), range(2 * settings.values - 1)
    triples = torch.cartesian_prod(*[torch.arange(settings.values)] * 3)
    with torch.no_grad():
        answers = model.compute(symbol_of[triples])[:, -1]
    rows = []
    for total in sums:
        row = []
        for last in digits:
            ways = (triples[:, :2].sum(-1) == total) & (triples[:, 2] == last)
            row.append(_cell(int(answers[ways].mode().values), total + last))
        rows.append(tuple(row))
    return Grid(
        "Both additions together",
        "The commonest answer for all digits a and b with the sum in front, and c above. Wrong "
        "ones are marked.",
        "(a + b) + c",
        tuple(map(str, digits)),
        tuple(map(str, sums)),
        tuple(rows),
    )


def _cell(answer: int, truth: int) -> tuple[str, bool]:
    return ("?" if answer < 0 else str(answer)), answer == truth
