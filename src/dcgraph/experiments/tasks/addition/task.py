"""MNIST addition: from two or three images to the sum of their digits, with no rule given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ...engine.metrics import Metric, Metrics
from ...engine.panels import Panel
from ...engine.settings import Settings
from ...engine.task import Batch, Data, Task
from . import columns, panels
from .baselines import Concatenated, Marginalised
from .commands import Commands
from .data.examples import examples
from .model.adder import Adder, Flat, LeNet
from .model.columns import ColumnAdder
from .settings import BEST, CARRY, CHAIN, DEMO, PAPER, SUMS, AdditionSettings
from .symbols import (
    addition_table,
    labels_of,
    meaning_of,
    read_images,
    symbol_of_digit,
    symbol_use,
)


class Addition(Task[AdditionSettings]):
    name: ClassVar[str] = "addition"
    settings: ClassVar[type[Settings]] = AdditionSettings
    presets: ClassVar[Mapping[str, Settings]] = {
        "paper": PAPER,
        "chain": CHAIN,
        "sums": SUMS,
        "carry": CARRY,
        "best": BEST,
        "demo": DEMO,
    }

    def preset_for(self, given: Mapping[str, str]) -> str:
        """Numbers of several digits need a carry."""
        return "carry" if "digits" in given else super().preset_for(given)

    def data(self, settings: AdditionSettings, data_dir: Path | None = None) -> Data:
        return examples(settings, data_dir)

    def model(self, settings: AdditionSettings) -> nn.Module:
        s = settings
        if s.model == "cnn":
            return Concatenated(s.summands, s.numbers)
        if s.images == "digits":
            if s.model == "deepproblog":
                return Marginalised(Flat(64, 64, 64, s.values))
            return self._adder(s, Flat(64, 64, 64, 32), 32, relu=False)
        if s.model == "deepproblog":
            return Marginalised(LeNet(256, 120, s.values))
        if s.digits:
            return ColumnAdder(
                LeNet(256, 120, 84, 84), 84, s.symbols, s.carries, init_std=s.init_std,
                similarity=s.similarity, residual=s.residual, estimator=s.estimator,
                prunable=s.prune > 0,
            )  # fmt: skip
        # By distance the rows are places, on both sides of 0, where no ReLU gets.
        return self._adder(s, LeNet(256, 120, 84, 84), 84, relu=s.similarity == "product")

    def _adder(self, s: AdditionSettings, encoder: nn.Module, dim: int, relu: bool) -> Adder:
        small = s.images == "digits" and not s.symbols
        return Adder(
            encoder, dim, s.numbers, s.summands,
            gate=s.gate, relu=relu, small_codebook=small, symbols=s.symbols,
            sums=s.sums, adder=s.adder, init_std=s.init_std, similarity=s.similarity,
            residual=s.residual, estimator=s.estimator, prunable=s.prune > 0,
        )  # fmt: skip

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, " examples"]:
        logits, total = model(batch["images"]), batch["total"]
        if total.ndim == 1:
            return F.cross_entropy(logits, total, reduction="none")
        of_digits = F.cross_entropy(logits.flatten(0, 1), total.flatten(), reduction="none")
        return of_digits.view(total.shape).sum(-1)

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Float[Tensor, " examples"]]:
        right = model(batch["images"]).argmax(-1) == batch["total"]
        return {"accuracy": (right if right.ndim == 1 else right.all(-1)).float()}

    def final_metrics(
        self,
        model: nn.Module,
        settings: AdditionSettings,
        data: Data,
        calibration: Mapping[str, float],
    ) -> Metrics:
        if isinstance(model, Concatenated):
            return {}
        assert isinstance(model, Adder | ColumnAdder | Marginalised)
        use = symbol_use(model, data, "train", settings)
        symbols = read_images(model, data, "test", settings)
        read = meaning_of(use)[symbols] == labels_of(data, "test")
        metrics: Metrics = {Metric("digit accuracy"): float(read.float().mean())}
        if isinstance(model, ColumnAdder):
            metrics |= columns.measured(model, data, settings, meaning_of(use))
        if isinstance(model, Adder):
            cells = addition_table(model, symbol_of_digit(use), settings)
            totals = cells[:, :-1].sum(-1)
            right = cells[:, -1] == (totals % settings.modulo if settings.modulo else totals)
            metrics[Metric("addition table accuracy")] = float(right.float().mean())
        return metrics

    def panels(self, model: nn.Module, settings: AdditionSettings, data: Data) -> Sequence[Panel]:
        return panels.of_model(model, settings, data)

    def commands(self) -> Mapping[str, Callable[..., str]]:
        return Commands(self).by_name()
