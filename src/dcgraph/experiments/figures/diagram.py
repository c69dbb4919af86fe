"""Boxes, arrows and words: what the drawings of computation graphs are made of."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from .style import heat

# As in the paper's drawings g is orange and h green.
G_COLOUR = "#fbd3a4"
H_COLOUR = "#c9e6c5"
PLAIN = "#e3e3e3"
BAR = "#9db8d2"  # a category
CHOSEN = "#17375e"  # the one with the largest entry, darker also without colour
INK = "0.25"  # of lines and arrows

CELL = 0.105  # inches, of a number in a strip


def canvas(figure: Figure) -> Axes:
    """The whole page as axes without lines, whose unit is the inch."""
    figure.set_layout_engine("none")  # there is nothing to arrange
    axes = figure.add_axes((0, 0, 1, 1))
    width, height = figure.get_size_inches()
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.set_axis_off()
    return axes


def box(
    axes: Axes, x: float, y: float, width: float, height: float, text: str,
    colour: str = PLAIN, **style: Any,
) -> None:  # fmt: skip
    """A box with round corners around (x, y)."""
    shape = FancyBboxPatch(
        (x - width / 2, y - height / 2), width, height,
        boxstyle="round,pad=0,rounding_size=0.04", facecolor=colour, edgecolor=INK, linewidth=0.7,
    )  # fmt: skip
    axes.add_patch(shape)
    write(axes, x, y, text, **style)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """A straight arrow."""
    line = FancyArrowPatch(
        start, end, arrowstyle="-|>", mutation_scale=7, shrinkA=0, shrinkB=0,
        color=INK, linewidth=1.0, zorder=2,
    )  # fmt: skip
    axes.add_patch(line)


def write(axes: Axes, x: float, y: float, text: str, ha: str = "center", **style: Any) -> None:
    """Text in the middle of (x, y)."""
    axes.text(x, y, text, ha=ha, va="center", multialignment="center", zorder=5, **style)


def strip(axes: Axes, x: float, y: float, values: list[float], scale: tuple[float, float]) -> None:
    """A vector as a strip of cells around (x, y), with white for ``scale``'s lower end."""
    low, high = scale
    left = x - len(values) * CELL / 2
    for i, value in enumerate(values):
        shade = heat()((value - low) / (high - low))
        corner = (left + i * CELL, y - CELL / 2)
        cell = Rectangle(corner, CELL, CELL, facecolor=shade, edgecolor="0.45", linewidth=0.4)
        axes.add_patch(cell)
