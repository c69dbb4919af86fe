"""Trained and random ListOps models as files, once for all tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dcgraph.experiments.engine.models import save_model
from listops_models import ABLE, RANDOM, TASK, able_model


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model that is mostly right, a random one as the paper's, and one without a tree."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    kinds = {"able": ABLE, "random": RANDOM, "flat": replace(RANDOM, model="lstm")}
    for name, settings in kinds.items():
        model = able_model() if name == "able" else TASK.model(settings)
        save_model(folder / f"{name}.safetensors", TASK, settings, model, 0.5)
    return {name: folder / f"{name}.safetensors" for name in kinds}
