"""Goodness of fit of every sampler over many seeds: the p-values themselves must be uniform.

python promises/samplers.py; `make samplers` does the same. For each of 200 seeds a sampler draws,
and a test asks whether the draws have the distribution that they should: Kolmogorov-Smirnov for
numbers, Pearson's chi-square for choices. If they do, the 200 p-values are uniform in [0, 1], which
another Kolmogorov-Smirnov test asks. A single seed can be lucky; 200 are not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # for the tests of fit

import dcgraph as dc
from dcgraph._philox import draw_gumbel_at
from dcgraph.structures import STRUCTURES
from promised import markdown, write
from statistics_of_fit import chi_square_p, kolmogorov_p
from trees import enumerate_all

SEEDS = 200
THETA = torch.tensor([1.0, 0.0, -1.0, 0.5, 0.2])
ROWS = 4000


def of_gumbel(draws: Tensor) -> float:
    """Gumbel noise has the distribution function exp(-exp(-x))."""
    return kolmogorov_p((-(-draws.double()).exp()).exp().flatten())


def of_choices(index: Tensor, theta: Tensor = THETA) -> float:
    return chi_square_p(torch.bincount(index.flatten(), minlength=len(theta)), theta.softmax(-1))


def of_trees(name: str) -> float:
    theta = torch.randn(3, 3)
    parents = STRUCTURES[name].sample(theta.expand(ROWS, 3, 3))
    every = enumerate_all(name, 3)
    which = (parents.unsqueeze(-2) == every.parents).all(-1).long().argmax(-1)
    probabilities = every.scores(theta).softmax(-1)
    return chi_square_p(torch.bincount(which, minlength=len(probabilities)), probabilities)


def of_gate(**how: Any) -> float:
    kept = dc.drop_residual(torch.zeros(ROWS, 2), torch.ones(ROWS, 2), 0.3, **how)
    draws = kept if how["gate"] == "element" else kept[:, 0]
    counts = torch.stack([(draws == 0).sum(), (draws == 1).sum()])
    return chi_square_p(counts, torch.tensor([0.3, 0.7]))


def node(training: bool, noise: str = "gumbel") -> dc.Categorical:
    made = dc.Categorical(decode="sample", noise=noise).train(training)  # type: ignore[arg-type]
    dc.Dials.constant(made, tau=0.5)
    return made


def of_codebook(decode: Callable[[Tensor, Tensor], Tensor]) -> float:
    """A codebook whose products with the query are the logits."""
    index = decode(torch.ones(ROWS, 1), THETA.unsqueeze(1))
    return of_choices(index)


def _mixed(query: Tensor, codes: Tensor) -> Tensor:
    """What a relaxed choice weighs most: the perturbed argmax, whatever the temperature."""
    wide = torch.cat([codes, torch.zeros(len(codes), len(codes))], 1)
    wide[:, 1:] = torch.eye(len(codes))
    asked = torch.cat([query, torch.zeros(len(query), len(codes))], 1)
    with dc.codebook._functions.using("blockwise"):
        return dc.mix(asked, wide, tau=0.5)[:, 1:].argmax(-1)


SAMPLERS: dict[str, Callable[[], float]] = {
    "gumbel, up to 1,024 numbers": lambda: of_gumbel(dc.gumbel([1024])),
    "gumbel, more numbers": lambda: of_gumbel(dc.gumbel([ROWS])),
    "gumbel in float64": lambda: of_gumbel(dc.gumbel([ROWS], dtype=torch.float64)),
    "gumbel by key and column (Philox)": lambda: of_gumbel(
        draw_gumbel_at(torch.randint(1 << 62, (4,)), 7, 1000)
    ),
    "sample": lambda: of_choices(dc.sample(THETA.expand(ROWS, -1))),
    "gumbel_softmax, a handful of numbers": lambda: of_choices(
        torch.cat([dc.gumbel_softmax(THETA.expand(100, -1), 0.5).argmax(-1) for _ in range(10)])
    ),
    "gumbel_softmax, hard": lambda: of_choices(
        dc.gumbel_softmax(THETA.expand(ROWS, -1), hard=True).argmax(-1)
    ),
    "Categorical in training": lambda: of_choices(node(True)(THETA.expand(ROWS, -1)).argmax(-1)),
    "Categorical at test": lambda: of_choices(node(False)(THETA.expand(ROWS, -1)).argmax(-1)),
    "OneHotCategorical.sample": lambda: of_choices(
        dc.OneHotCategorical(THETA).sample((ROWS,)).argmax(-1)
    ),
    "DropRes, a gate per element": lambda: of_gate(gate="element"),
    "DropRes, a gate per vector": lambda: of_gate(gate="vector"),
    "DropRes, replacing": lambda: of_gate(gate="vector", mode="replace"),
    "codebook.choose": lambda: of_codebook(lambda q, c: dc.codebook.choose(q, c, beta=1.0)[0]),
    "codebook.mix": lambda: of_codebook(_mixed),
    "arborescence.sample": lambda: of_trees("arborescence"),
    "spanning_tree.sample": lambda: of_trees("spanning_tree"),
    "one_parent.sample": lambda: of_trees("one_parent"),
}


def p_values(name: str, seeds: int) -> Tensor:
    found, first = [], 100_000 * list(SAMPLERS).index(name)  # each has seeds of its own
    for seed in range(first, first + seeds):
        torch.manual_seed(seed)
        found.append(SAMPLERS[name]())
    return torch.tensor(found, dtype=torch.float64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    began, rows = time.monotonic(), {}
    for name in SAMPLERS:
        found = p_values(name, options.seeds)
        rows[name] = {
            "uniform": float(f"{kolmogorov_p(found):.3g}"),
            "smallest": float(f"{float(found.min()):.2g}"),
            "below 1 %": int((found < 0.01).sum()),
        }
        print(name, rows[name], flush=True)
    write(
        "samplers",
        {"seeds": options.seeds, "samplers": rows, "seconds": round(time.monotonic() - began)},
    )


def table(found: dict[str, Any]) -> str:
    """The record as Markdown."""
    head = ["sampler", "p that the p-values are uniform", "smallest p", "below 1 %"]
    rows = [
        [name, *(f"{row[key]:g}" for key in ("uniform", "smallest", "below 1 %"))]
        for name, row in found["samplers"].items()
    ]
    return markdown([head, *rows])


if __name__ == "__main__":
    main()
