"""What the page of a run shows of a ListOps model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dcgraph.experiments.engine.panels import Examples, Grid
from dcgraph.experiments.tasks.listops.commands import Commands
from dcgraph.experiments.tasks.listops.data.expressions import (
    parse,
)
from dcgraph.experiments.tasks.listops.decoding import TreeDecoder
from dcgraph.experiments.tasks.listops.model.edges import Counters
from dcgraph.experiments.tasks.listops.model.latent_tree import LatentTree
from dcgraph.experiments.tasks.listops.reading import read
from listops_models import (
    TASK,
    python_value,
    small_data,
)


@pytest.mark.parametrize("name", ["able", "random"])
def test_the_panels_are_what_the_model_does(name: str, models: dict[str, Path]) -> None:
    model, settings = Commands(TASK).load(models[name])
    assert isinstance(model, LatentTree)
    examples, *grids = TASK.panels(model, settings, small_data())
    if isinstance(model.edges.encode, Counters):
        counters = grids.pop(0)
        assert isinstance(counters, Grid)
        table = [[float(text) for text, _ in row] for row in counters.cells]
        learned = torch.cat([model.edges.encode.table().T, model.edges.encode.distance[:, None]], 1)
        assert torch.allclose(torch.tensor(table), learned.detach(), atol=0.051)
    assert isinstance(examples, Examples) and len(grids) == 3
    assert "of 120 test expressions are wrong" in examples.note
    assert len(examples.rows) > 4 and all(row[-1].right is False for row in examples.rows[4:])
    for expression, *steps in examples.rows:
        (reading,) = read(TreeDecoder(model), [parse(expression.text)], 5)
        assert len(steps) == expression.text.count("[")
        for step in steps:
            assert step.right == (not step.caption)
        assert steps[-1].text.startswith(reading.name(0)), "the root comes last"
        assert steps[-1].text.endswith(f" = {reading.answer}")
        assert ("it is" in steps[-1].caption) == (reading.answer != python_value(expression.text))
        if name == "able":  # whose trees are right: what an operator got is what those before made
            assert not any("children" in step.caption for step in steps)
    for grid in grids:
        assert isinstance(grid, Grid) and (len(grid.rows), len(grid.columns)) == (10, 10)
        operator = grid.corner.split()[0]
        cells = [cell for row in grid.cells for cell in row]
        for k, (text, right) in enumerate(cells):
            assert right == (int(text) == python_value(f"[{operator} {k // 10} {k % 10} ]"))
        if name == "able":
            assert sum(bool(right) for _, right in cells) > 50


def test_operators_are_computed_as_the_model_in_the_package_does() -> None:
    """Its closing brackets send nothing, and every one of its trees is right."""
    model, settings = Commands(TASK).load(None)
    assert isinstance(model, LatentTree) and model.edges.senders == "values"
    _, _, *grids = TASK.panels(model, settings, small_data())
    decoder = TreeDecoder(model)
    for grid in grids:
        assert isinstance(grid, Grid)
        operator = grid.corner.split()[0]
        texts = [f"[{operator} {a} {b} ]" for a in range(10) for b in range(10)]
        answers = [reading.answer for reading in read(decoder, list(map(parse, texts)), 5)]
        assert [int(text) for row in grid.cells for text, _ in row] == answers


def test_the_panels_of_a_model_without_a_tree(models: dict[str, Path]) -> None:
    model, settings = Commands(TASK).load(models["flat"])
    (examples,) = TASK.panels(model, settings, small_data())
    assert isinstance(examples, Examples)
    for expression, answer in examples.rows:
        said = int(answer.text.removeprefix("= "))
        assert answer.right == (said == python_value(expression.text))
