"""The figures of the paper and more: a registry of what there is, and one module to draw each.

The registry needs neither torch nor matplotlib; a figure's module does, and is imported when it is
made. ``dcgraph figure NAME`` on the command line is :func:`make` with a few words around it.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..engine.files import write_atomically, write_json


@dataclass(frozen=True)
class Figure:
    """How a figure is made: numbers first, then a PNG from the numbers only.

    The numbers come from a seed, or from the records in a folder.
    """

    module: str  # of this package, with a function ``compute``
    summary: str  # what it shows, in one line
    plan: str  # what the computer is about to do, and for how long
    look: str  # what the reader should look at
    from_records: bool = False
    drawn_by: str = "draw"  # a function of the module

    def compute(self, source: int | Path) -> dict[str, Any]:
        """The numbers, ready for JSON, from a seed or from a folder of records."""
        numbers: dict[str, Any] = self._imported().compute(source)
        return numbers

    def draw(self, numbers: dict[str, Any], path: Path) -> None:
        """A PNG of what :meth:`compute` returned."""
        getattr(self._imported(), self.drawn_by)(numbers, path)

    def _imported(self) -> Any:
        return importlib.import_module(f".{self.module}", __package__)


FIGURES: dict[str, Figure] = {
    "saturation": Figure(
        "saturation",
        "larger noise keeps gradients alive (Figure 2)",
        plan=(
            "Training many models of two parameters at each of several noise scales beta; "
            "about 5 seconds."
        ),
        look=(
            "all probabilities saturate (c), but the larger beta is, the longer gradients last (b) "
            "and theta goes on moving (a); in the first 100 steps small beta is ahead and steadier."
        ),
    ),
    "simplex": Figure(
        "simplex",
        "what annealing tau and growing beta do",
        plan=(
            "Drawing the density of Gumbel-softmax samples on the simplex for pairs of tau and "
            "beta; about 2 seconds."
        ),
        look=(
            "from left to right both rows become discrete, but annealing tau (top) keeps the "
            "share of each corner, while growing beta (bottom) evens the shares out."
        ),
    ),
    "addition-table": Figure(
        "addition_table",
        "what the shipped model has learned of addition",
        plan=(
            "Reading the images of MNIST with the shipped model and adding every pair of digits; "
            "about 5 seconds."
        ),
        look=(
            "the symbols (grey) were never named and have no order, yet each stands for one digit "
            "(a), and from them only the model computes the sums (b); white on red would be wrong."
        ),
    ),
    "component": Figure(
        "component",
        "a discrete node in training and at test (Figure 3)",
        plan=(
            "Sending one random vector through a discrete node, in training and at test; "
            "about 1 second."
        ),
        look=(
            "in training (a) z is soft and noisy, v mixes all rows of w', and u is sometimes "
            "added; at test (b) v is exactly one row of w', and nothing else of u gets through."
        ),
    ),
    "example": Figure(
        "example",
        "two sums, as the shipped model computes them (Figure 1)",
        plan=(
            "Reading the images of MNIST with the shipped model and adding two pairs of them, one "
            "drawn from all test pairs and one from its errors; about 5 seconds."
        ),
        look=(
            "each image becomes one symbol, and only the symbols are added; so the dark boxes show "
            "where an error (b) arose: in reading an image, or in adding."
        ),
    ),
    "codebook": Figure(
        "codebook",
        "how mix goes over a large codebook, block by block",
        plan="Going over a codebook block by block, for one query; about 1 second.",
        look=(
            "whatever the number of rows, three things are kept for a query: the largest logit, a "
            "sum and a mixture of rows; where the largest grows, the other two are scaled down."
        ),
    ),
    "lead": Figure(
        "lead",
        "how far ahead a category must be for noise to leave it in front",
        plan=(
            "Computing how often noise leaves the best of up to ten million categories in front, "
            "and drawing noise many times at some places; about 10 seconds."
        ),
        look=(
            "the more categories there are, the farther ahead the best must be (a): by beta times "
            "the logarithm of their number; fewer rivals, less noise or noise without a heavy tail "
            "(b) ask for less."
        ),
    ),
    "lengths": Figure(
        "lengths",
        "path queries longer than those in training",
        plan="Drawing how well path queries of each length are answered; about 2 seconds.",
        look=(
            "a model that chooses an entity at every hop loses little on paths three times as long "
            "as in training (a), and nothing on those twice as long (b); ComplEx, which multiplies "
            "the relations of a path, loses more. On WN11 (c) longer paths in training help with "
            "long ones."
        ),
        from_records=True,
    ),
    "annealing": Figure(
        "annealing",
        "three ways to set tau and beta (Figure 4)",
        plan="Drawing the learning curves of all runs from their records; about 3 seconds.",
        look=(
            "on 2 summands TempMatch reaches the top early and in every run, TauAnn late, and base "
            "in some runs only (a, b); with DropRes all three do; on the chain (c) none does."
        ),
        from_records=True,
    ),
    "annealing-runs": Figure(
        "annealing",
        "every run of these (Figures 7 and 8)",
        drawn_by="draw_runs",
        plan="Drawing each run from its record; about 3 seconds.",
        look=(
            "runs climb from plateau to plateau; the corner of each panel says how many reached "
            "0.9 and 0.97, and when."
        ),
        from_records=True,
    ),
    "category": Figure(
        "category",
        "a category that is found late (Figure 4, right)",
        plan="Drawing what the probe read of one category in two runs; about 2 seconds.",
        look=(
            "the accuracy of the TempMatch run jumps (a) when a category that had hardly any share "
            "(b) is found; in the base run (d) the unused categories have a small share (e) and a "
            "small gradient (f) to the end."
        ),
        from_records=True,
    ),
    "sums": Figure(
        "sums",
        "long sums, and numbers that are added with a learned carry",
        plan="Drawing how many sums of each length are right; about 2 seconds.",
        look=(
            "a dot is a seed, and the dashed line what reading allows: dots on it make no error in "
            "adding, however long the sum is."
        ),
        from_records=True,
    ),
    "chains": Figure(
        "chains",
        "gradient estimators on chains: direction, by depth",
        plan="Drawing how well every estimator finds the exact gradient of chains; 3 seconds.",
        look=(
            "with ten categories and more, estimators that send a gradient through the chain "
            "(upper rows) lose its direction after a few choices, those that use the loss (bottom) "
            "later; residuals (dashed) lead astray here, for each step permutes the symbols."
        ),
        from_records=True,
    ),
    "chains-residual": Figure(
        "chains",
        "the same where each step mostly keeps the state",
        drawn_by="draw_keeping",
        plan="Drawing how well every estimator finds the exact gradient of chains; 3 seconds.",
        look=(
            "where a residual says the same as the choice, most estimators that send a gradient "
            "through the chain keep its direction longer with DropRes (dashed) than without."
        ),
        from_records=True,
    ),
    "chains-errors": Figure(
        "chains",
        "gradient estimators on chains: bias and deviation",
        drawn_by="draw_errors",
        plan="Drawing bias and standard deviation of every estimator on chains; 3 seconds.",
        look=(
            "a bias of 1 means that nothing of the gradient arrives, as from depth 4 on with most; "
            "what has no bias has a deviation of several times the gradient."
        ),
        from_records=True,
    ),
    "gradients": Figure(
        "gradients",
        "what reaches each round of ListOps (Figure 6)",
        plan="Drawing what the probe read of the runs of ListOps; about 2 seconds.",
        look=(
            "without both methods a hundredth of the gradient is left at the embedding, farthest "
            "from the loss (a), and it stays small (c); with either there is as much as near the "
            "loss, with DropRes more; at the end (b) no residual is left, and runs differ."
        ),
        from_records=True,
    ),
    "estimators": Figure(
        "estimators",
        "every gradient estimator, with and without the two methods",
        plan="Drawing what the runs of every estimator reached; about 2 seconds.",
        look=(
            "a row is an estimator, its four marks are with and without DropRes and TempMatch: see "
            "whether the marks of a row or the rows of a mark are farther apart."
        ),
        from_records=True,
    ),
    "plane": Figure(
        "plane",
        "noise scale beta and temperature tau, both constant",
        plan="Drawing what the runs at each beta and tau reached; about 2 seconds.",
        look=(
            "framed is where beta is tau; the column on the right is TempMatch, which ends there: "
            "see where in a row the best constant beta is, and whether TempMatch is as good."
        ),
        from_records=True,
    ),
}


def make(
    name: str, folder: Path, seed: int = 0, results: Path = Path("results")
) -> tuple[Path, Path]:
    """Write ``name.png`` and ``name.json`` into ``folder``; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = FIGURES[name]
    numbers = figure.compute(results if figure.from_records else seed)
    picture, data = folder / f"{name}.png", folder / f"{name}.json"
    write_atomically(picture, lambda path: figure.draw(numbers, path))
    write_json(data, numbers)
    return picture, data
