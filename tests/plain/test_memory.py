"""Training loops keep nothing of a step. `make memory` runs 10,000 steps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import memory


@pytest.mark.parametrize("name", memory.LOOPS)
def test_python_keeps_nothing_of_a_step(name: str) -> None:
    assert memory.growth(memory.LOOPS[name], 200)["python"] < memory.PYTHON


def test_the_measure_sees_a_loop_that_keeps_something() -> None:
    kept: list[Tensor] = []
    found = memory.growth(lambda: lambda number: kept.append(torch.zeros(1)), 800)
    assert found["python"] > memory.PYTHON
