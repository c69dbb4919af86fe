"""The commands of addition."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from dcgraph.experiments.engine.errors import ModelError
from dcgraph.experiments.engine.models import save_model
from dcgraph.experiments.tasks.addition.commands import Commands, drawn, side_by_side
from dcgraph.experiments.tasks.addition.data.images import MNIST
from dcgraph.experiments.tasks.addition.settings import DEMO
from dcgraph.experiments.tasks.addition.task import Addition
from local_files import require

TASK = Addition()


def test_evaluate_and_predict_on_a_model_of_the_embedded_digits(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = tmp_path / "m.safetensors"
    save_model(path, TASK, DEMO, TASK.model(DEMO), 0.0)
    answer = json.loads(Commands(TASK).evaluate(model=path))
    assert answer["examples"] == 2000 and 0 <= answer["accuracy"] <= 1
    assert {"digit accuracy, argmax", "addition table accuracy, argmax", "decode"} <= set(answer)
    text = Commands(TASK).predict(model=path, count=2)
    assert text.count("symbol") == 6 and text.count(" + ") == 4
    assert ("right" in text) or ("wrong, it is" in text)


def test_images_in_the_terminal() -> None:
    image = torch.tensor([[0, 9], [9, 9], [0, 0], [0, 9]], dtype=torch.uint8)
    assert drawn(image) == ["▄█", " ▄"]
    assert side_by_side([["ab"], ["cd"]], ["x", "y"]) == "ab  cd\nx   y"


def test_the_model_in_the_package_adds_numbers_of_any_length(tmp_path: Path) -> None:
    """Every sum of 200 digits is that of the digits it read."""
    require(*MNIST)
    text = Commands(TASK).predict(digits=200, count=2)
    blocks = text.split("column  symbols")[1:]
    assert len(blocks) == 2
    for block in blocks:
        lines = block.strip().splitlines()
        left, right, result = (int(line.strip(" +=")) for line in lines[-4:-1])
        assert left + right == result and len(lines) > 200
    torch.manual_seed(0)
    path = tmp_path / "m.safetensors"
    save_model(path, TASK, DEMO, TASK.model(DEMO), 0.0)
    with pytest.raises(ModelError, match="train one: --digits 4"):
        Commands(TASK).predict(digits=3, model=path)
