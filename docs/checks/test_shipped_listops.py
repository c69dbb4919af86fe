"""The ListOps model in the package, on whole sets: without checks of types, which take longer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dcgraph.experiments.tasks.listops.commands import Commands
from dcgraph.experiments.tasks.listops.task import ListOps


@pytest.mark.parametrize(
    "name", ["test", "d8", "d10", "d8-long", "d10-long", "critical-d5", "critical-d8"]
)
def test_the_model_in_the_package_does_what_the_docs_say(name: str) -> None:
    """The numbers of its table are measured, not typed from memory."""
    measured = json.loads(Commands(ListOps()).evaluate(set=name))
    keys = ("task accuracy", "edge precision", "intermediate accuracy")
    numbers = " | ".join(f"{100 * measured[key]:.2f}" for key in keys)
    page = (Path(__file__).parents[2] / "docs" / "listops.md").read_text()
    assert f"| {name} | {numbers} |" in page
