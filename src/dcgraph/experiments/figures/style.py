"""How all figures look, and how they are saved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure

WRONG = "#6b0f1a"  # of errors: darker than all else, also without colour
_DPI = 200
_SETTINGS: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "legend.fontsize": 8.0,
    "lines.linewidth": 1.3,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.constrained_layout.wspace": 0.06,
}


@contextmanager
def page(path: Path, width: float, height: float) -> Iterator[Figure]:
    """An empty figure, its size in inches, to draw on; written to ``path`` as PNG afterwards."""
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        figure.savefig(path, format="png", dpi=_DPI)


def shades(count: int, of: str = "plasma") -> list[str]:
    """Colours from light to dark, which keep their order when printed without colour.

    ``of`` is a map of colours: pictures of different things side by side have different ones.
    """
    colours = matplotlib.colormaps[of]
    return [to_hex(colours(0.8 * (1 - i / max(1, count - 1)))) for i in range(count)]


def heat() -> LinearSegmentedColormap:
    """White to a medium blue, on which black dots still show."""
    blues = matplotlib.colormaps["Blues"]
    colours = [(1.0, 1.0, 1.0), *(blues(0.7 * i / 8) for i in range(1, 9))]
    return LinearSegmentedColormap.from_list("heat", colours)
