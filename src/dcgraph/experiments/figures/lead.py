"""How far ahead a category must be for noise to leave it in front, by the number of categories.

One category leads all others, which are equal, by d. With Gumbel noise of scale beta its chance of
the largest sum is softmax(theta / beta): 1 / (1 + (n - 1) exp(-d / beta)), so that a lead is worth
little below beta log n. Reversed noise has no heavy tail upwards. There the chance is

    E[(1 - exp(-t exp(d / beta)))^(n - 1)] with t ~ Exp(1),

because -G <= x has the probability 1 - exp(-exp(x)), and exp(-G) is such a t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ...functional import sample
from ...noise import Distribution
from .style import page, shades

BETA = 4.0
COUNTS = (10, 135, 38_696, 10_000_000)
WN11 = 38_696
LONGEST = 120.0

_POINTS = 241
_SIMULATED = (0.25, 0.5, 0.75)  # chances near which a dot stands
_AT_ONCE = 100  # draws, so that their noise is no burden


@dataclass(frozen=True)
class Way:
    """Noise among some of the categories."""

    name: str
    beta: float
    noise: Distribution = "gumbel"
    rivals: int = WN11 - 1


WAYS = (
    Way("Gumbel", BETA),
    Way("among the nearest 100", BETA, rivals=99),
    Way("reversed", BETA, "reversed"),
    Way("a tenth of the scale", BETA / 10),
)


@cache  # curves and dots ask for the same
def chance(lead: float, way: Way) -> float:
    """That the leader comes out in front."""
    if way.noise == "gumbel":
        return 1 / (1 + way.rivals * math.exp(-lead / way.beta))
    # Quantiles of t: the mean over them is the expectation.
    shares = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    t = -torch.log1p(-shares)
    all_below = torch.log1p(-torch.exp(-t * math.exp(lead / way.beta))) * way.rivals
    return float(all_below.exp().mean())


def compute(seed: int = 0, *, draws: int = 500) -> dict[str, Any]:
    """Chances along the lead, and at a few places how often it was so in draws of the library."""
    leads = [LONGEST * k / (_POINTS - 1) for k in range(_POINTS)]
    generator = torch.Generator().manual_seed(seed)
    by_count = [Way(f"{count:,}", BETA, rivals=count - 1) for count in COUNTS]

    def curves(ways: Sequence[Way]) -> list[dict[str, Any]]:
        return [
            {
                "name": way.name,
                "beta": way.beta,
                "rivals": way.rivals,
                "chances": [float(f"{chance(lead, way):.4g}") for lead in leads],
                "dots": _dots(leads, way, draws, generator),
            }
            for way in ways
        ]

    return {
        "figure": "lead",
        "seed": seed,
        "draws": draws,
        "leads": leads,
        "by_count": curves(by_count),
        "ways": curves(WAYS),
    }


def _dots(
    leads: Sequence[float], way: Way, draws: int, generator: torch.Generator
) -> list[tuple[float, float]]:
    """Simulated chances, where the curve passes a few values; not for millions of categories."""
    if way.rivals > WN11:
        return []
    chances = [chance(lead, way) for lead in leads]
    dots = []
    for wanted in _SIMULATED:
        lead = min(zip(leads, chances, strict=True), key=lambda at: abs(at[1] - wanted))[0]
        theta = torch.zeros(way.rivals + 1)
        theta[0] = lead
        won = 0
        for first in range(0, draws, _AT_ONCE):
            rows = theta.expand(min(_AT_ONCE, draws - first), -1)
            chosen = sample(rows, beta=way.beta, noise=way.noise, generator=generator)
            won += int((chosen == 0).sum())
        dots.append((lead, won / draws))
    return dots


def draw(numbers: dict[str, Any], path: Path) -> None:
    """Draw what :func:`compute` returned."""
    with page(path, width=7.2, height=2.6) as figure:
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, curves in ((left, numbers["by_count"]), (right, numbers["ways"])):
            for curve, colour in zip(curves, shades(len(curves)), strict=True):
                axes.plot(numbers["leads"], curve["chances"], color=colour, label=curve["name"])
                if curve["dots"]:
                    axes.plot(*zip(*curve["dots"], strict=True), "o", color=colour, markersize=3)
            axes.set_xlabel("lead of the best score")
            axes.set_xlim(0, numbers["leads"][-1])
            axes.set_ylim(0, 1.02)
        left.set_ylabel("chance that noise leaves it in front")
        left.set_title(rf"(a) Gumbel noise, $\beta$ = {BETA:g}")
        left.legend(title="categories", loc="center right")
        right.set_title(rf"(b) {WN11:,} categories, $\beta$ = {BETA:g}")
        right.legend(title="noise", loc="center right")
