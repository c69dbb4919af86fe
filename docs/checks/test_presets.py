"""Every value of a preset has a reason on its page, and every reason a value."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dcgraph.experiments.tasks import TASKS, get_task

ROOT = Path(__file__).parents[2]
RENDER = runpy.run_path(str(ROOT / "docs" / "render.py"))
PAGE = (ROOT / "docs" / "reference" / "presets.md").read_text()
SHOWN = re.findall(r"<!-- presets (\w+): ([\w, -]+) -->", PAGE)


def test_every_preset_is_on_the_page_once() -> None:
    there = [(task, preset) for task in TASKS for preset in get_task(task).presets]
    shown = [(task, preset) for task, presets in SHOWN for preset in presets.split(", ")]
    assert sorted(shown) == sorted(there)
    assert set(SHOWN) == set(RENDER["reasons"]()), "a reason of a preset that is not shown"


def test_every_source_is_explained() -> None:
    table, _, _ = PAGE.partition("## ")
    explained = set(re.findall(r"^\| ([\w ]+) \| \w", table, flags=re.MULTILINE)) - {"from"}
    sources = {source for why in RENDER["reasons"]().values() for source, _ in why.values()}
    assert sources == explained


def test_the_values_are_those_of_the_presets() -> None:
    """Read from the page, where a reader does."""
    preset = get_task("listops").presets["best"]
    _, _, table = PAGE.partition("<!-- presets listops: best -->\n")
    lines = table.partition("<!-- end -->")[0].splitlines()[2:]
    assert len(lines) > 10
    for line in lines:
        name, _, value, *_ = (cell.strip(" `") for cell in line.strip("|").split(" | "))
        assert value == str(getattr(preset, name)), line


@pytest.fixture
def presets(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    task = type(get_task("addition"))
    changed = dict(task.presets)
    monkeypatch.setattr(task, "presets", changed)
    yield changed


def test_a_value_without_a_reason_is_refused(presets: dict[str, Any]) -> None:
    presets["paper"] = replace(presets["paper"], batch=17)
    with pytest.raises(ValueError, match=r"addition\.paper.*'batch'"):
        RENDER["preset_table"]("addition", "paper")


def test_a_reason_without_a_value_is_refused(presets: dict[str, Any]) -> None:
    presets["paper"] = replace(presets["paper"], protocol="clean")
    with pytest.raises(ValueError, match=r"addition\.paper.*'protocol'"):
        RENDER["preset_table"]("addition", "paper")
