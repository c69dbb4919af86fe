"""Report panels: what a task can show of a trained model beside numbers and curves."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Shown:
    """One thing in an example: an input, what a node read, or the answer; a picture or a text."""

    caption: str
    text: str = ""
    image: Tensor | None = None  # grey values [height, width], 0 is paper and the largest ink
    right: bool | None = None  # None where there is no right and wrong


@dataclass(frozen=True)
class Remark:
    """A sentence on a trained model at the end of a run; a warning says what to do about it."""

    text: str
    warning: bool = False


@dataclass(frozen=True)
class Examples:
    """Examples, each from its inputs through what the nodes read to the answer.

    The parts of an example stand side by side. In ``chains`` arrows lead from one to the next, with
    the caption of the next on them.
    """

    title: str
    note: str
    rows: tuple[tuple[Shown, ...], ...]
    chains: bool = False


@dataclass(frozen=True)
class Grid:
    """A table that the model has learned; a cell is what it says, and whether that is right."""

    title: str
    note: str
    corner: str  # names rows and columns, such as "a + b"
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[tuple[str, bool | None], ...], ...]


Panel = Examples | Grid
