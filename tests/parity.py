"""A tiny task for the tests of the training engine: the parity of three bits, read one by one.

The data, three replicas and what they are compared by are here too, for all of these tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.experiments.engine import Batch, Data, Metric, Outcome, Settings, Task, setting


class Network(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.read = nn.Linear(1, width)
        self.symbol = dc.Discrete(width, 4, gate="example")
        self.combine = nn.Sequential(
            nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width)
        )
        self.answer = nn.Linear(width, 2)

    def forward(self, bits: Tensor) -> Tensor:
        vectors = self.symbol(self.read(bits.unsqueeze(-1)))
        total = vectors[:, 0]
        for k in range(1, bits.shape[1]):
            total = self.symbol(self.combine(torch.cat([total, vectors[:, k]], -1)))
        logits: Tensor = self.answer(total)
        return logits


@dataclass(frozen=True, kw_only=True)
class ParitySettings(Settings):
    width: int = setting(8, "width of the vectors")


QUICK = ParitySettings(
    epochs=2, batch=8, schedule_steps=2, evaluations=2, lr=3e-3, alpha_step=0.1, gamma=0.2
)


class Parity(Task[ParitySettings]):
    name: ClassVar[str] = "parity"
    settings: ClassVar[type[Settings]] = ParitySettings
    presets: ClassVar[Mapping[str, Settings]] = {"quick": QUICK}

    def data(self, settings: ParitySettings, data_dir: Path | None = None) -> Data:
        bits = torch.randint(2, (96, 3), generator=torch.Generator().manual_seed(0))
        table = {"bits": bits.float(), "parity": bits.sum(1) % 2}
        split = {"train": slice(0, 64), "validation": slice(64, 80), "test": slice(80, 96)}
        return Data(
            {name: {k: t[rows] for k, t in table.items()} for name, rows in split.items()}, "bits"
        )

    def model(self, settings: ParitySettings) -> nn.Module:
        return Network(settings.width)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch["bits"]), batch["parity"], reduction="none")

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"accuracy": (model(batch["bits"]).argmax(-1) == batch["parity"]).float()}


class Lengths(Parity):
    """The same task with sequences of two lengths, each in a table of its own."""

    def data(self, settings: ParitySettings, data_dir: Path | None = None) -> Data:
        whole = super().data(settings, data_dir)
        splits = {
            split: [
                {"bits": whole.table(split)["bits"], "parity": whole.table(split)["parity"]},
                {
                    "bits": whole.table(split)["bits"][:10, :2],
                    "parity": whole.table(split)["bits"][:10, :2].sum(1).long() % 2,
                },
            ]
            for split in whole.splits
        }
        return Data(splits, "lengths")


TASK = Parity()
DATA = TASK.data(QUICK)
ACCURACY = Metric("accuracy", "validation")
THREE = [replace(QUICK, seed=0), replace(QUICK, seed=1, lr=1e-2), replace(QUICK, seed=2, tau=2.0)]


def same(one: Outcome, two: Outcome) -> bool:
    return (
        torch.equal(one.population.weights, two.population.weights)
        and torch.equal(one.best_weights, two.best_weights)
        and one.curve == two.curve
        and one.metrics == two.metrics
    )
