"""The paper's figures, each computed and drawn by one module; matplotlib is needed from here on.

``dcgraph figure NAME`` on the command line is :func:`make` with a few words around it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import saturation, simplex


@dataclass(frozen=True)
class Recipe:
    """How a figure is made: numbers from a seed, then a PNG from the numbers alone."""

    compute: Callable[[int], dict[str, Any]]
    draw: Callable[[dict[str, Any], Path], None]
    plan: str  # what the computer is about to do, and for how long
    look: str  # what the reader should look at


FIGURES: dict[str, Recipe] = {
    "saturation": Recipe(
        saturation.compute,
        saturation.draw,
        plan=(
            "Training 64 models of two parameters for 5,000 steps at each of 5 noise scales beta; "
            "about 5 seconds."
        ),
        look=(
            "all probabilities saturate (c), but the larger beta is, the longer gradients last (b) "
            "and theta goes on moving (a); in the first 100 steps small beta is ahead and steadier."
        ),
    ),
    "simplex": Recipe(
        simplex.compute,
        simplex.draw,
        plan=(
            "Drawing the law of Gumbel-softmax samples on the simplex for 8 pairs of tau and beta; "
            "about 2 seconds."
        ),
        look=(
            "from left to right both rows become discrete, but annealing tau (top) keeps the "
            "share of each corner, while growing beta (bottom) evens the shares out."
        ),
    ),
}


def make(name: str, folder: Path, seed: int = 0) -> tuple[Path, Path]:
    """Write ``name.png`` and ``name.json`` into ``folder``; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe = FIGURES[name]
    numbers = recipe.compute(seed)
    text = json.dumps(numbers, allow_nan=False) + "\n"
    picture, data = folder / f"{name}.png", folder / f"{name}.json"
    _write(picture, lambda path: recipe.draw(numbers, path))
    _write(data, lambda path: path.write_text(text))
    return picture, data


def _write(path: Path, write: Callable[[Path], object]) -> None:
    """Through a temporary file beside it, so that ``path`` is never half written."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
