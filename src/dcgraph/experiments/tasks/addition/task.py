"""MNIST addition: from two or three images to the sum of their digits, with no rule given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, cast

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ...engine.panels import Exhibit
from ...engine.settings import Settings
from ...engine.task import Batch, Data, Task
from .baselines import Concatenated, Marginalised
from .data.examples import examples, to_batch
from .model.adder import Adder, Flat, LeNet
from .settings import BEST, CHAIN, DEMO, PAPER, AdditionSettings
from .symbols import (
    addition_table,
    labels_of,
    meaning_of,
    read_images,
    symbol_of_digit,
    symbol_use,
)


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
        return examples(cast(AdditionSettings, settings), data_dir)

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
        return to_batch(cast(AdditionSettings, settings), shared, rows, training)

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
        from . import panels

        return panels.of_model(model, cast(AdditionSettings, settings), data)

    def commands(self) -> Mapping[str, Callable[..., str]]:
        from . import commands

        return {
            "evaluate": commands.evaluate,
            "predict": commands.predict,
            "data": commands.data,
        }
