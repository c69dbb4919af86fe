"""All sets of the task: training, validation and test for depths 1 to 5, deeper tests, and more."""

from __future__ import annotations

from pathlib import Path
from random import Random

from .depth_critical import critical
from .expressions import Expression, write
from .generator import Law, distinct

DEPTHS = range(1, 6)
SPLITS = {"train": 20_000, "validation": 2_000, "test": 2_000}
"""The splits of each depth, and their sizes."""

DEEPER = {"d8": (8, 50), "d10": (10, 50), "d8-long": (8, 100), "d10-long": (10, 100)}
"""Tests of 2,000 expressions beyond the training data: depth and largest number of tokens."""

CRITICAL_DEPTHS = range(1, 9)
ROUNDS = 5
"""Rounds of messages with which a model is measured, unless a set is deeper."""

_DEEPER_SIZE = 2_000
_CRITICAL_SIZE = 250  # of each depth


def law_of(depth: int, longest: int = 50) -> Law:
    """The law of the data of a depth.

    Up to depth 5 operators stand at levels 1 to 5, and from depth 2 on there are at least 10
    tokens: with these settings the statistics are those of the paper's validation and test data.
    Deeper expressions may have operators at any level down to their depth.
    """
    return Law(depth, levels=max(depth, 5), shortest=10 if depth > 1 else 4, longest=longest)


def rounds_for(name: str) -> int:
    """The rounds that a set asks for: 5, or the depth that its name states, if it is deeper.

    >>> [rounds_for(name) for name in ("test", "d10-long", "critical-d2", "critical-d8", "other")]
    [5, 10, 5, 8, 5]
    """
    stated = {deeper: depth for deeper, (depth, _) in DEEPER.items()}
    stated |= {f"critical-d{depth}": depth for depth in CRITICAL_DEPTHS}
    return max(ROUNDS, stated.get(name, 0))


def generate(seed: int) -> dict[str, list[Expression]]:
    """The 128,000 expressions, all different, by the names ``train-d1`` to ``test-d5`` and d8 etc.

    The same seed gives the same expressions everywhere.
    """
    sets: dict[str, list[Expression]] = {}
    for depth in DEPTHS:
        drawn = distinct(law_of(depth), sum(SPLITS.values()), _source(seed, depth))
        start = 0
        for split, size in SPLITS.items():
            sets[f"{split}-d{depth}"] = drawn[start : start + size]
            start += size
    for number, (name, (depth, longest)) in enumerate(DEEPER.items(), 10):
        known = {each for other in DEEPER if other in sets for each in sets[other]}
        law = law_of(depth, longest)
        sets[name] = distinct(law, _DEEPER_SIZE, _source(seed, number), known)
    return sets


def generate_critical(
    seed: int, known: set[Expression], size: int = _CRITICAL_SIZE
) -> dict[str, list[Expression]]:
    """The depth-critical expressions, ``critical-d1`` to ``critical-d8``; none of them is known."""
    return {
        f"critical-d{depth}": critical(law_of(depth), size, _source(seed, 20 + depth), known)
        for depth in CRITICAL_DEPTHS
    }


def write_all(folder: Path, seed: int) -> list[Path]:
    """Write every set into a file of its own; gives the files."""
    sets = generate(seed)
    sets |= generate_critical(seed, {each for drawn in sets.values() for each in drawn})
    paths = {folder / f"{name}.txt": drawn for name, drawn in sets.items()}
    for path, drawn in paths.items():
        write(path, drawn)
    return list(paths)


def _source(seed: int, number: int) -> Random:
    """Each set has numbers of its own, so that one can change without the others."""
    if seed < 0:  # Python takes -1 for 1
        raise ValueError(f"seed={seed}, but a seed is at least 0.")
    return Random(100 * seed + number)
