"""The paper's figures, each computed and drawn by one module; matplotlib is needed from here on.

``dcgraph figure NAME`` on the command line is :func:`make` with a few words around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..files import write_atomically, write_json
from . import addition_table, saturation, simplex


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
    "addition-table": Recipe(
        addition_table.compute,
        addition_table.draw,
        plan=(
            "Reading the images of MNIST with the shipped model and adding every pair of digits; "
            "about 5 seconds."
        ),
        look=(
            "the symbols (grey) were never named and have no order, yet each stands for one digit "
            "(a), and from them alone the model computes the sums (b); dark cells are wrong."
        ),
    ),
}


def make(name: str, folder: Path, seed: int = 0) -> tuple[Path, Path]:
    """Write ``name.png`` and ``name.json`` into ``folder``; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe = FIGURES[name]
    numbers = recipe.compute(seed)
    picture, data = folder / f"{name}.png", folder / f"{name}.json"
    write_atomically(picture, lambda path: recipe.draw(numbers, path))
    write_json(data, numbers)
    return picture, data
