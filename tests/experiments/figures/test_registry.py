"""The registry of figures, and how a figure is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dcgraph.experiments import figures
from dcgraph.experiments.figures import component


@pytest.mark.parametrize("name", figures.FIGURES)
def test_every_figure_has_a_test_and_what_the_command_needs(name: str) -> None:
    figure = figures.FIGURES[name]
    tests = Path(__file__).parent / f"test_{figure.module}.py"
    check = "check_from_records" if figure.from_records else "check_figure"
    assert f'{check}("{name}"' in tests.read_text()
    assert len(figure.summary) <= 64 and not figure.summary.endswith(".")
    module = figure._imported()
    assert callable(module.compute) and callable(getattr(module, figure.drawn_by))


def test_a_failed_drawing_leaves_the_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(numbers: dict[str, Any], path: Path) -> None:
        path.write_text("half a picture")
        raise RuntimeError("out of ink")

    monkeypatch.setattr(component, "draw", fail)
    (tmp_path / "component.png").write_text("old")
    with pytest.raises(RuntimeError, match="out of ink"):
        figures.make("component", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["component.png"]
    assert (tmp_path / "component.png").read_text() == "old"
