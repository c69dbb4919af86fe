"""The paper's figures, each computed and drawn by one module; matplotlib is needed from here on.

``dcgraph figure NAME`` on the command line is :func:`make` with a few words around it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..engine.files import write_atomically, write_json
from . import (
    addition_table,
    annealing,
    category,
    component,
    example,
    gradients,
    lead,
    lengths,
    mixing,
    saturation,
    simplex,
)


@dataclass(frozen=True)
class Recipe:
    """How a figure is made: numbers first, then a PNG from the numbers alone.

    The numbers come from a seed, or from the records in a folder.
    """

    compute: Callable[[int], dict[str, Any]] | Callable[[Path], dict[str, Any]]
    draw: Callable[[dict[str, Any], Path], None]
    plan: str  # what the computer is about to do, and for how long
    look: str  # what the reader should look at
    from_records: bool = False


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
    "component": Recipe(
        component.compute,
        component.draw,
        plan=(
            "Sending one random vector through a discrete node, in training and at test; "
            "about 1 second."
        ),
        look=(
            "in training (a) z is soft and noisy, v mixes all rows of w', and u is sometimes "
            "added; at test (b) v is exactly one row of w', and nothing else of u gets through."
        ),
    ),
    "example": Recipe(
        example.compute,
        example.draw,
        plan=(
            "Reading the images of MNIST with the shipped model and adding two pairs of them, one "
            "drawn from all test pairs and one from its errors; about 5 seconds."
        ),
        look=(
            "each image becomes one symbol, and only the symbols are added; so the dark boxes show "
            "where an error (b) arose: in reading an image, or in adding."
        ),
    ),
    "mixing": Recipe(
        mixing.compute,
        mixing.draw,
        plan="Going over a codebook of 24 rows in four blocks, for one query; about 1 second.",
        look=(
            "whatever the number of rows, three things are kept for a query: the largest logit, a "
            "sum and a mixture of rows; where the largest grows, the other two are scaled down."
        ),
    ),
    "lead": Recipe(
        lead.compute,
        lead.draw,
        plan=(
            "Computing how often noise leaves the best of up to ten million categories in front, "
            "and drawing it 500 times at some places; about 10 seconds."
        ),
        look=(
            "the more categories there are, the farther ahead the best must be (a): by beta times "
            "the logarithm of their number; fewer rivals, less noise or noise without a heavy tail "
            "(b) ask for less."
        ),
    ),
    "lengths": Recipe(
        lengths.compute,
        lengths.draw,
        plan="Drawing how well path queries of each length are answered; about 2 seconds.",
        look=(
            "a model that chooses an entity at every hop loses little on paths three times as long "
            "as in training (a), and nothing on those twice as long (b), one that composes "
            "relations loses more; on WN11 (c) longer paths in training help with long ones."
        ),
        from_records=True,
    ),
    "annealing": Recipe(
        annealing.compute,
        annealing.draw,
        plan="Drawing the learning curves of 108 runs from their records; about 3 seconds.",
        look=(
            "on 2 summands TempMatch reaches the top early and in every run, TauAnn late, and base "
            "in some runs only (a, b); with DropRes all three do; on the chain (c) none does."
        ),
        from_records=True,
    ),
    "annealing-runs": Recipe(
        annealing.compute,
        annealing.draw_runs,
        plan="Drawing each of 108 runs from its record; about 3 seconds.",
        look=(
            "runs climb from plateau to plateau; the corner of each panel says how many reached "
            "0.9 and 0.97, and when."
        ),
        from_records=True,
    ),
    "category": Recipe(
        category.compute,
        category.draw,
        plan="Drawing what the probe read of one category in two runs; about 2 seconds.",
        look=(
            "the accuracy of the TempMatch run jumps (a) when a category that had hardly any share "
            "(b) is found; in the base run (d) the unused categories have a small share (e) and a "
            "small gradient (f) to the end."
        ),
        from_records=True,
    ),
    "gradients": Recipe(
        gradients.compute,
        gradients.draw,
        plan="Drawing what the probe read of 32 runs of ListOps; about 2 seconds.",
        look=(
            "without both methods a hundredth of the gradient is left at the embedding, farthest "
            "from the loss (a), and it stays small (c); with either there is as much as near the "
            "loss, with DropRes more; at the end (b) no residual is left, and runs differ."
        ),
        from_records=True,
    ),
}


def make(
    name: str, folder: Path, seed: int = 0, results: Path = Path("results")
) -> tuple[Path, Path]:
    """Write ``name.png`` and ``name.json`` into ``folder``; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe = FIGURES[name]
    source: Any = results if recipe.from_records else seed
    numbers = recipe.compute(source)
    picture, data = folder / f"{name}.png", folder / f"{name}.json"
    write_atomically(picture, lambda path: recipe.draw(numbers, path))
    write_json(data, numbers)
    return picture, data
