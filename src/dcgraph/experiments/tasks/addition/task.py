"""MNIST addition: from two or three images to the sum of their digits, with no rule given."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ...engine.panels import Exhibit
from ...engine.settings import Settings, own, shared
from ...engine.task import Batch, Data, Task, fingerprint_of
from . import images, lists
from .augment import jitter
from .baselines import Concatenated, Marginalised
from .model import Adder, Flat, LeNet

_DATA_SEED = 0  # of splits and lists: the same examples for every replica
_VALIDATION = {2: 5_000, 3: 3_333}  # examples held out of MNIST's training lists
_EMBEDDED = {
    "train": 160_000,
    "validation": 2_000,
    "test": 2_000,
}  # random sums of the small images


@dataclass(frozen=True, kw_only=True)
class AdditionSettings(Settings):
    """Settings of the addition task."""

    tau: float = own(8.0, "temperature of the nodes")
    summands: int = shared(2, "images to add, 2 or 3")
    model: Literal["discrete", "cnn", "deepproblog"] = shared(
        "discrete", "ours; or a CNN on both images; or the digit network with the rule given"
    )
    images: Literal["mnist", "digits"] = shared("mnist", "MNIST, or the embedded 8x8 digits")
    digits: int = shared(10, "digits in use: 0 to this number less 1 (embedded images only)")
    protocol: Literal["clean", "paper"] = shared(
        "clean", "choose weights on held-out pairs; or on the test set, as the paper"
    )
    gate: Literal["batch", "example"] = shared("batch", "what shares a draw of the DropRes gate")
    augment: float = shared(0.0, "strength of random turns, shifts and stretches of the images")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.summands not in _VALIDATION:
            raise ValueError(f"summands={self.summands}, but 2 or 3 images can be added.")
        if not 2 <= self.digits <= 10:
            raise ValueError(f"digits={self.digits}, but between 2 and 10 digits can be in use.")
        if self.images == "mnist" and self.digits < 10:
            raise ValueError(f"digits={self.digits}, but on MNIST all 10 digits are in use.")
        if self.images == "digits" and self.model == "cnn":
            raise ValueError("model='cnn' needs images of 28x28; use --images mnist.")
        if self.augment < 0:
            raise ValueError(f"augment={self.augment}, but a strength is at least 0.")

    @property
    def numbers(self) -> int:
        """How many sums there are."""
        return self.summands * (self.digits - 1) + 1


PAPER = AdditionSettings(protocol="paper")
CHAIN = AdditionSettings(
    summands=3, batch=32, lr=1e-3, decay=0.5, tau=2.0, gamma=0.02, alpha_step=0.005, gate="example"
)
BEST = AdditionSettings(
    epochs=60, batch=64, lr=1e-3, decay=0.3, average=0.999, augment=1.0,
    gamma=0.003, alpha_step=0.0015, gate="example",
)  # fmt: skip
DEMO = AdditionSettings(
    images="digits", digits=5, summands=3, epochs=1, batch=32, moves=100, evaluations=10,
    lr=3e-3, decay=0.5, gamma=0.02, alpha_step=0.06, gate="example",
)  # fmt: skip


class Addition(Task):
    name: ClassVar[str] = "addition"
    settings: ClassVar[type[Settings]] = AdditionSettings
    presets: ClassVar[Mapping[str, Settings]] = {
        "paper": PAPER,
        "chain": CHAIN,
        "best": BEST,
        "demo": DEMO,
    }

    def data(self, settings: Settings, data_dir: Path | None = None) -> Data:
        settings = cast(AdditionSettings, settings)
        if settings.images == "digits":
            return _embedded(settings)
        return _mnist(settings, data_dir)

    def model(self, settings: Settings) -> nn.Module:
        s = cast(AdditionSettings, settings)
        if s.model == "cnn":
            return Concatenated(s.summands, s.numbers)
        if s.images == "digits":
            if s.model == "deepproblog":
                return Marginalised(Flat(64, 64, 64, s.digits))
            return Adder(
                Flat(64, 64, 64, 32), 32, s.numbers, s.summands,
                gate=s.gate, relu=False, small_codebook=True,
            )  # fmt: skip
        if s.model == "deepproblog":
            return Marginalised(LeNet(256, 120, s.digits))
        return Adder(LeNet(256, 120, 84, 84), 84, s.numbers, s.summands, gate=s.gate)

    def inputs(self, settings: Settings, shared: Batch, rows: Batch, training: bool) -> Batch:
        strength = cast(AdditionSettings, settings).augment
        images = pixels(shared["images"][rows["images"]], cast(AdditionSettings, settings).images)
        if training and strength > 0:
            images = jitter(images.flatten(0, 1), strength).view(images.shape)
        return {"images": images, "total": rows["total"]}

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, " examples"]:
        return F.cross_entropy(model(batch["images"]), batch["total"], reduction="none")

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Float[Tensor, " examples"]]:
        right = model(batch["images"]).argmax(-1) == batch["total"]
        return {"accuracy": right.float()}

    def readout(self, model: nn.Module, settings: Settings, data: Data) -> dict[str, float]:
        if isinstance(model, Concatenated):
            return {}
        assert isinstance(model, Adder | Marginalised) and isinstance(settings, AdditionSettings)
        use = symbol_use(model, data, "train", settings)
        symbols = read_images(model, data, "test", settings)
        read = meaning_of(use)[symbols] == labels_of(data, "test")
        numbers = {"digit accuracy": float(read.float().mean())}
        if isinstance(model, Adder):
            cells = addition_table(model, symbol_of_digit(use), settings)
            right = cells[:, -1] == cells[:, :-1].sum(-1)
            numbers["table accuracy"] = float(right.float().mean())
        return numbers

    def exhibits(self, model: nn.Module, settings: Settings, data: Data) -> Sequence[Exhibit]:
        from . import exhibits

        return exhibits.of_model(model, cast(AdditionSettings, settings), data)

    def commands(self) -> Mapping[str, Callable[..., str]]:
        from . import commands

        return {
            "evaluate": commands.evaluate,
            "predict": commands.predict,
            "data": commands.data,
        }


def pixels(images: Tensor, source: str) -> Tensor:
    """Pixel values as the networks see them: MNIST in [-1, 1] as in the paper, digits in [0, 1]."""
    return images / 127.5 - 1 if source == "mnist" else images / 16


@torch.no_grad()
def read_images(
    model: Adder | Marginalised, data: Data, split: str, settings: AdditionSettings
) -> Int[Tensor, " images"]:
    """The symbols of all images of a split."""
    chosen = data.shared["images"][_images_of(data, split)]
    return torch.cat([model.read(pixels(part, settings.images)) for part in chosen.split(2000)])


def labels_of(data: Data, split: str) -> Int[Tensor, " images"]:
    """The digits of all images of a split, in the same order."""
    return data.shared["labels"][_images_of(data, split)]


def _images_of(data: Data, split: str) -> Tensor:
    """Every image of a split once."""
    images: Tensor = data.table(split)["images"].unique()
    return images


def symbol_use(
    model: Adder | Marginalised, data: Data, split: str, settings: AdditionSettings
) -> Int[Tensor, "symbols digits"]:
    """How many images of each digit got each symbol.

    Symbols are learned without digits, so their names are arbitrary; this is how they are read.
    """
    symbols, labels = read_images(model, data, split, settings), labels_of(data, split)
    use = torch.zeros(settings.numbers, 10, dtype=torch.long, device=symbols.device)
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

    The answer is a number right away, because the last layer is trained on sums.
    """
    every = list(itertools.product(range(settings.digits), repeat=settings.summands))
    digits = torch.tensor(every, device=symbol_of.device)
    return torch.cat([digits, model.compute(symbol_of[digits])[:, -1:]], -1)


def _mnist(settings: AdditionSettings, data_dir: Path | None) -> Data:
    source = images.mnist(data_dir)
    if settings.summands == 2:
        train, test = lists.published_pairs(data_dir)
    else:
        train = lists.tuples(len(source.train), settings.summands, _DATA_SEED)
        test = lists.tuples(len(source.test), settings.summands, _DATA_SEED)
    indices = {"train": train, "test": test + len(source.train)}
    if settings.protocol == "clean":
        kept, held_out = lists.holdout(len(train), _VALIDATION[settings.summands], _DATA_SEED)
        indices |= {"train": train[kept], "validation": train[held_out]}
    return _table(source, indices)


def _embedded(settings: AdditionSettings) -> Data:
    """Random sums of the small images, from separate images in each split.

    The images are split at random, so a writer's digits may be in all three.
    """
    source = images.digits()
    labels = torch.cat([source.train_labels, source.test_labels])
    shuffled = lists.tuples(len(labels), 1, _DATA_SEED).flatten()
    pools = {"train": shuffled[:1300], "test": shuffled[1300:]}
    if settings.protocol == "clean":
        pools |= {"train": shuffled[:1100], "validation": shuffled[1100:1300]}
    indices = {}
    for split, pool in pools.items():
        used = pool[labels[pool] < settings.digits]
        indices[split] = lists.random_tuples(used, _EMBEDDED[split], settings.summands, _DATA_SEED)
    return _table(source, indices)


def _table(source: images.Images, indices: dict[str, Tensor]) -> Data:
    labels = torch.cat([source.train_labels, source.test_labels])
    splits = {
        split: {"images": rows, "total": labels[rows].sum(-1)} for split, rows in indices.items()
    }
    fingerprint = fingerprint_of(source.fingerprint, *(indices[split] for split in sorted(indices)))
    pictures = torch.cat([source.train, source.test])
    return Data(splits, fingerprint, {"images": pictures, "labels": labels})
