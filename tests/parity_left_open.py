"""Parity with a preset that leaves its batch open."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from dcgraph.experiments.engine import Settings
from parity import QUICK, Parity, ParitySettings


class LeftOpen(Parity):
    presets: ClassVar[Mapping[str, Settings]] = {"fits": QUICK, "quick": QUICK}
    open_settings: ClassVar[Mapping[str, Collection[str]]] = {"fits": ["batch"]}

    def fitted(
        self, settings: ParitySettings, chosen: Collection[str], data_dir: Path | None = None
    ) -> ParitySettings:
        if settings.width > 50:
            raise ValueError(f"{settings.width} is too wide.")
        return settings if "batch" in chosen else replace(settings, batch=2 * settings.width)
