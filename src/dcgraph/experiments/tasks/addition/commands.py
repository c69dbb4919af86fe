"""What ``dcgraph evaluate``, ``predict`` and ``data`` do for addition."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from ...._arguments import Decode
from ...engine.errors import DataError, ModelError
from ...engine.metrics import in_words
from ...engine.models import load_model
from ...engine.step import set_decode
from ...engine.task import Data, Task
from . import columns
from .data import lists
from .data.examples import pixels
from .model.adder import Adder
from .model.columns import ColumnAdder
from .settings import AdditionSettings
from .symbols import meaning_of, symbol_use

SHIPPED, CARRYING = "best.safetensors", "carry.safetensors"
"""The models in the package: of two digits, and of numbers of several digits."""


def load(
    task: Task[AdditionSettings], model: Path | None, shipped: str = SHIPPED
) -> tuple[nn.Module, AdditionSettings]:
    """A trained model: a file, the best one of a run's folder, or one in the package."""
    if model is not None:
        return load_model(model, task)
    with as_file(files(__package__) / shipped) as path:
        return load_model(path, task)


class Commands:
    """The commands of the task; what they read is a model of it."""

    def __init__(self, task: Task[AdditionSettings]) -> None:
        self._task = task

    def by_name(self) -> dict[str, Callable[..., str]]:
        return {"evaluate": self.evaluate, "predict": self.predict, "data": self.data}

    def evaluate(
        self,
        *,
        model: Path | None = None,
        pairs: Path | None = None,
        decode: Decode = "argmax",
        data_dir: Path | None = None,
    ) -> str:
        """Measure a model on the published test pairs or on your own; prints JSON.

        Args:
            model: file or folder of a run; the model in the package, if not given.
            pairs: lines `addition(i,j,sum).` with indices into the test images.
            decode: how the nodes choose.
            data_dir: folder of the data; else $DCGRAPH_DATA, the cache, a download.
        """
        network, settings = load(self._task, model)
        data = self._task.data(settings, data_dir)
        rows = data.table("test") if pairs is None else _given(pairs, data, settings)
        set_decode(network, decode)
        right = 0.0
        for part in torch.arange(len(rows["total"])).split(1000):
            chosen = {name: table[part] for name, table in rows.items()}
            batch = data.batch(chosen, training=False)
            with torch.no_grad():
                right += float(self._task.metrics(network, batch)["accuracy"].sum())
        measured = self._task.final_metrics(network, settings, data, {})
        answer = {
            "task": self._task.name,
            "model": str(model) if model else "shipped",
            "examples": len(rows["total"]),
            "decode": decode,
            "accuracy": round(right / len(rows["total"]), 6),
            **{in_words(metric): round(v, 6) for metric, v in measured.items() if v is not None},
        }
        return json.dumps(answer, indent=1)

    def predict(
        self,
        *,
        model: Path | None = None,
        digits: int = 0,
        count: int = 3,
        first: int = 0,
        data_dir: Path | None = None,
    ) -> str:
        """Show images of the test set, the symbol each one got, and the sum.

        Args:
            model: file or folder of a run; the model in the package, if not given.
            digits: add two numbers of so many digits, column by column.
            count: how many examples.
            first: the first of them.
            data_dir: folder of the data; else $DCGRAPH_DATA, the cache, a download.
        """
        network, settings = load(self._task, model, CARRYING if digits else SHIPPED)
        if isinstance(network, ColumnAdder):
            data = self._task.data(settings, data_dir)
            shown = columns.shown(network, settings, data, digits or settings.digits, first, count)
            return "\n\n".join(shown)
        if digits:
            raise ModelError("this model adds no numbers of several digits; train one: --digits 4.")
        if not isinstance(network, Adder):
            raise ModelError(
                "this model has no symbols to show; predict needs one trained as "
                "`--model discrete`."
            )
        data = self._task.data(settings, data_dir)
        size = data.size("test")
        if not 0 <= first < size or count < 1:
            raise DataError(f"examples {first} to {first + count - 1}: there are 0 to {size - 1}.")
        meaning = meaning_of(symbol_use(network, data, "train", settings))
        rows = data.table("test")["images"][first : first + count]
        raw = data.constants["images"][rows]
        with torch.no_grad():
            answers = network(pixels(raw, settings.images)).argmax(-1)
            symbols = network.read(pixels(raw.flatten(0, 1), settings.images)).view(rows.shape)
        truths = data.table("test")["total"][first : first + count]
        blocks = []
        for k in range(len(rows)):
            captions = [
                f"symbol {int(symbol)} = {_name(meaning, int(symbol))}" for symbol in symbols[k]
            ]
            verdict = "right" if answers[k] == truths[k] else f"wrong, it is {int(truths[k])}"
            terms = " + ".join(_name(meaning, int(symbol)) for symbol in symbols[k])
            picture = side_by_side([drawn(image) for image in raw[k]], captions)
            blocks.append(f"{picture}\n{terms} = {int(answers[k])}  ({verdict})")
        return "\n\n".join(blocks)

    def data(
        self,
        *,
        summands: int = 2,
        images: Literal["mnist", "digits"] = "mnist",
        data_dir: Path | None = None,
    ) -> str:
        """Find the images and lists, fetching what is missing; says what there is.

        Args:
            summands: images to add.
            images: MNIST, or the embedded 8x8 digits.
            data_dir: folder of the data; else $DCGRAPH_DATA, the cache, a download.
        """
        settings = AdditionSettings(summands=summands, images=images)
        found = self._task.data(settings, data_dir)
        lines = [
            f"{len(found.constants['images']):,} images ({images}), fingerprint {found.fingerprint}"
        ]
        lines += [f"{split}: {found.size(split):,} sums of {summands}" for split in found.splits]
        return "\n".join(lines)


def _given(path: Path, data: Data, settings: AdditionSettings) -> dict[str, Tensor]:
    if settings.digits:
        raise DataError("lists of pairs are for models that add single digits.")
    if settings.images != "mnist":
        raise DataError("lists of pairs point into MNIST; this model reads the embedded digits.")
    labels, first = data.constants["labels"], 60_000  # the test images come after those
    indices, totals = lists.read_pairs(path, len(labels) - first, settings.summands)
    rows = indices + first
    wrong = (labels[rows].sum(-1) != totals).nonzero().flatten()
    if len(wrong):
        example = int(wrong[0])
        raise DataError(
            f"{path}: example {example + 1} says {int(totals[example])}, but its digits add up to "
            f"{int(labels[rows[example]].sum())}; indices point into the test images."
        )
    return {"images": rows, "total": totals}


def _name(meaning: Tensor, symbol: int) -> str:
    return str(int(meaning[symbol])) if meaning[symbol] >= 0 else "?"


def drawn(image: Tensor) -> list[str]:
    """An image in half blocks, so that pixels are square; a line of text is two rows of pixels."""
    dark = (image > image.max() / 2).tolist()
    blocks = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
    return [
        "".join(blocks[above, below] for above, below in zip(*rows, strict=True))
        for rows in zip(dark[::2], dark[1::2], strict=True)
    ]


def side_by_side(pictures: Sequence[list[str]], captions: Sequence[str]) -> str:
    width = max(len(pictures[0][0]), *(len(caption) for caption in captions)) + 2
    lines = [*zip(*pictures, strict=True), tuple(captions)]
    return "\n".join("".join(part.ljust(width) for part in line).rstrip() for line in lines)
