"""What a column adder has learned: its cell, entry by entry, and sums of numbers of any length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from ...engine.errors import DataError
from ...engine.metrics import Metric, Metrics
from ...engine.panels import Examples, Grid, Panel, Shown
from ...engine.task import Data
from .data import lists
from .data.examples import digits_of_sums, pixels
from .model.columns import CellTable, ColumnAdder
from .settings import LENGTHS, AdditionSettings
from .symbols import labels_of, meaning_of, read_images, symbol_of_digit, symbol_use


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


def panels(model: ColumnAdder, settings: AdditionSettings, data: Data) -> Sequence[Panel]:
    """Sums, column by column; what the symbols stand for; and the table of each carry."""
    use = symbol_use(model, data, "train", settings)
    return (_sums(model, settings, data, meaning_of(use)), *_grids(model.table(), use))


def shown(
    model: ColumnAdder,
    settings: AdditionSettings,
    data: Data,
    digits: int,
    first: int,
    count: int,
) -> Iterator[str]:
    """Sums of numbers of so many digits, from images of the test set, each as a text."""
    symbols, labels = read_images(model, data, "test", settings), labels_of(data, "test")
    if not 1 <= digits <= len(symbols) // 2:
        raise DataError(
            f"digits={digits}, but {len(symbols):,} test images are numbers of 1 to "
            f"{len(symbols) // 2:,} digits."
        )
    rows = lists.tuples(len(symbols), 2 * digits, seed=0)
    if not 0 <= first < len(rows) or count < 1:
        last = first + count - 1
        raise DataError(
            f"sums {first} to {last}: of {digits} digits there are 0 to {len(rows) - 1}."
        )
    meaning = meaning_of(symbol_use(model, data, "train", settings))
    table = model.table()
    for row in rows[first : first + count]:
        yield _in_columns(table, meaning, symbols[row], labels[row])


def _in_columns(table: CellTable, meaning: Tensor, symbols: Tensor, labels: Tensor) -> str:
    read = meaning[symbols]
    (result,), (carries,) = table.add(*symbols[None].chunk(2, 1))
    (truth,), (added,) = digits_of_sums(labels[None]), digits_of_sums(read[None])
    lines = ["column  symbols   read as   carried   digit   carry"]
    carried = "start"
    for column, (left, right) in enumerate(zip(*symbols.chunk(2), strict=True)):
        a, b = (int(half[column]) for half in read.chunk(2))
        digit, carry = int(result[column]), int(carries[column])
        wrong = [
            f"is {int(true[column])}, not {_digit(one)}"
            for true, one in zip(labels.chunk(2), (a, b), strict=True)
            if int(true[column]) != one
        ]
        chosen = f"{int(left):>3} {int(right):>3}   {_digit(a):>3} + {_digit(b)}"
        line = f"{column + 1:>6}  {chosen}   {carried:>7}"
        lines.append(f"{line}   {digit:>5}   {carry:>5}   {'; '.join(wrong)}".rstrip())
        carried = str(carry)
    numbers = [in_digits(half) for half in (*read.chunk(2), result)]
    width = max(map(len, numbers)) + 2
    is_right = bool((result == truth).all())
    adds = "added right" if bool((result == added).all()) else "added wrong"
    verdict = "right" if is_right else f"wrong, it is {in_digits(truth)}; {adds}"
    lines += ["", numbers[0].rjust(width), "+ " + numbers[1].rjust(width - 2)]
    lines += ["= " + numbers[2].rjust(width - 2), f"({verdict})"]
    return "\n".join(lines)


_SHOWN = 4  # sums of the test set


def _sums(
    model: ColumnAdder, settings: AdditionSettings, data: Data, meaning: Int[Tensor, " symbols"]
) -> Examples:
    images = data.table("test")["images"][:_SHOWN]
    labels, table = data.constants["labels"][images], model.table()
    raw = data.constants["images"][images]
    symbols = model.read(pixels(raw.flatten(0, 1), settings.images)).view(images.shape)
    digits, carries = table.add(*symbols.chunk(2, 1))
    truths, rows = digits_of_sums(labels), []
    for k in range(len(images)):
        row = []
        for i in [
            *reversed(range(settings.digits)),
            *reversed(range(settings.digits, 2 * settings.digits)),
        ]:
            read, true = int(meaning[symbols[k, i]]), int(labels[k, i])
            sign = "+ " if i == 2 * settings.digits - 1 else ""
            caption = f"{sign}symbol {int(symbols[k, i])}: {_digit(read)}"
            row.append(Shown(caption, f"image of a {true}", raw[k, i], right=read == true))
        right = bool((digits[k] == truths[k]).all())
        carried = " ".join(str(int(one)) for one in carries[k].flip(0))
        verdict = f"carries {carried}" + ("" if right else f"; it is {in_digits(truths[k])}")
        row.append(Shown(verdict, f"= {in_digits(digits[k])}", right=right))
        rows.append(tuple(row))
    note = (
        "The first of the test set. Under an image stands the symbol it got, and the digit that "
        "this symbol commonly stands for. The carries are symbols, too."
    )
    return Examples("Sums it added, column by column", note, tuple(rows))


def in_digits(digits: Int[Tensor, " digits"]) -> str:
    """As it is written, the first digit in front; a leading zero is left out."""
    return "".join(map(_digit, digits.flip(0).tolist())).lstrip("0") or "0"


def _digit(meaning: int) -> str:
    """What a symbol stands for, which no training image may have got."""
    return "?" if meaning < 0 else str(meaning)


def _grids(table: CellTable, use: Int[Tensor, "symbols digits"]) -> Iterator[Grid]:
    """What the cell answers for all pairs of digits, for each carry that can be reached."""
    names = tuple(map(str, range(10)))
    symbol, both = symbol_of_digit(use), torch.arange(10)[:, None] + torch.arange(10)
    for carry, true in sorted(table.reached(meaning_of(use))):
        digits = table.digit[carry][symbol][:, symbol].tolist()
        following = table.next[carry][symbol][:, symbol].tolist()
        right = ((both + true) % 10).tolist()
        which = "at the start" if carry == table.start else f"with the carry {carry}"
        yield Grid(
            f"The cell {which}",
            f"The digit of a + b, and the carry it hands on, where {true} is carried. Wrong digits "
            "are marked.",
            "a + b",
            names,
            names,
            tuple(
                tuple(
                    (f"{digits[a][b]}, {following[a][b]}", digits[a][b] == right[a][b])
                    for b in range(10)
                )
                for a in range(10)
            ),
        )
