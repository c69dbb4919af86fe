"""The addition task with few examples, for runs that shall end after a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from dcgraph.experiments.engine.settings import Settings
from dcgraph.experiments.engine.task import Data
from dcgraph.experiments.tasks.addition.settings import DEMO, AdditionSettings
from dcgraph.experiments.tasks.addition.task import Addition

SIZES = {"train": 256, "validation": 128, "test": 128}


class FewSums(Addition):
    name: ClassVar[str] = "few-sums"
    presets: ClassVar[Mapping[str, Settings]] = {
        "default": replace(DEMO, epochs=2, batch=32, summands=2, schedule_steps=2, evaluations=2)
    }

    def data(self, settings: AdditionSettings, data_dir: Path | None = None) -> Data:
        whole = super().data(settings, data_dir)
        splits = {
            split: {name: tensor[:size] for name, tensor in whole.table(split).items()}
            for split, size in SIZES.items()
        }
        return replace(whole, splits=splits, fingerprint=f"{whole.fingerprint}, few")
