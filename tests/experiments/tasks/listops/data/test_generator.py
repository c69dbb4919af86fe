"""The generator draws from the distribution that it promises."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest
import torch

from dcgraph.experiments.tasks.listops.data.expressions import Expression, parse, text_of, tree_of
from dcgraph.experiments.tasks.listops.data.generator import Distribution
from listops_oracles import (
    FUNCTIONS,
    Nested,
    depth_of,
    drawn,
    flat,
    homogeneity_p,
    operator_levels,
    written,
)
from statistics_of_fit import chi_square_p


def shape_of(expression: Expression) -> str:
    return re.sub("M..", "M", re.sub("[0-9]", "0", text_of(expression)))


def grown(source: Random, levels: int, level: int = 1) -> Nested:
    """The original generator, word for word: an operator, then arguments until all are digits."""
    arguments: list[Nested] = []
    for _ in range(source.choice([2, 3, 4, 5])):
        if level < levels and source.random() < 0.25:
            arguments.append(grown(source, levels, level + 1))
        else:
            arguments.append(source.randrange(10))
    return source.choice(list(FUNCTIONS)), arguments


def rejected(distribution: Distribution, count: int, source: Random) -> list[Expression]:
    kept: list[Expression] = []
    while len(kept) < count:
        tree = grown(source, distribution.levels)
        if depth_of(tree) == distribution.depth and len(flat(tree)) <= distribution.longest:
            kept += [parse(written(tree))] * (len(flat(tree)) >= distribution.shortest)
    return kept


def shapes(levels: int, level: int, longest: int) -> Iterator[tuple[str, float, int]]:
    """All operators at a level with their arguments: text, probability and depth."""
    for count in (2, 3, 4, 5):
        for text, p, depth in rows_of_shapes(levels, level + 1, count, longest - 2):
            yield f"[M {text}]", p / 4, depth + 1


def rows_of_shapes(
    levels: int, level: int, count: int, longest: int
) -> Iterator[tuple[str, float, int]]:
    """All rows of arguments, with at least one token for each that is still to come."""
    if count == 0 or longest < count:
        yield from [("", 1.0, 0)] if count == 0 else []
        return
    firsts = [("0", 0.75 if level <= levels else 1.0, 0)]
    if level <= levels and longest - count + 1 >= 4:
        operators = shapes(levels, level, longest - count + 1)
        firsts += [(text, p / 4, depth) for text, p, depth in operators]
    for text, p, depth in firsts:
        left = longest - len(text.split())
        for rest, q, other in rows_of_shapes(levels, level, count - 1, left):
            yield f"{text} {rest}", p * q, max(depth, other)


@pytest.mark.parametrize(
    "distribution",
    [
        Distribution(2, 2, 4, 12),
        Distribution(2, 5, 10, 12),
        Distribution(3, 3, 4, 13),
        Distribution(3, 5, 10, 13),
        Distribution(4, 4, 4, 15),
    ],
)
def test_the_distribution_of_shapes_by_enumeration(distribution: Distribution) -> None:
    """Every shape there is, with its probability."""
    likely = {
        text: p
        for text, p, depth in shapes(distribution.levels, 1, distribution.longest)
        if depth == distribution.depth and len(text.split()) >= distribution.shortest
    }
    assert max(len(text.split()) for text in likely) == distribution.longest
    some = drawn(distribution, 12_000)
    counts = Counter(map(shape_of, some))
    assert set(counts) <= set(likely)
    probabilities = torch.tensor([*likely.values()], dtype=torch.float64)
    found = torch.tensor([counts[text] for text in likely], dtype=torch.float64)
    probabilities /= probabilities.sum()
    assert probabilities.min() * len(some) > 5
    assert chi_square_p(found, probabilities) > 1e-4
    uniform = torch.ones(len(likely), dtype=torch.float64) / len(likely)
    assert chi_square_p(found, uniform) < 1e-4  # the test can fail


FEATURES: dict[str, Callable[[Expression], object]] = {
    "length": len,
    "operators": lambda e: sum(0 < token < 4 for token in e),
    "arguments of the root": lambda e: tree_of(e).parents.count(0),
    "operators at the deepest level": lambda e: operator_levels(e).count(tree_of(e).depth),
    "arguments of the last operator": lambda e: tree_of(e).parents.count(
        max(position for position, token in enumerate(e) if 0 < token < 4)
    ),
    "most brackets closed at once": lambda e: max(map(len, re.findall(b"\0+", e))),
    "value": lambda e: tree_of(e).values[0],
    "first tokens": lambda e: bytes(min(token, 4) for token in e[:3]),
}


def feature_ps(first: list[Expression], second: list[Expression]) -> dict[str, float]:
    return {
        name: homogeneity_p([*map(feature, first)], [*map(feature, second)])
        for name, feature in FEATURES.items()
    }


@pytest.mark.parametrize(
    ("distribution", "other_levels"),
    [
        (Distribution(3, 5, 10, 50), 3),
        (Distribution(5, 5, 10, 50), 6),
        (Distribution(7, 7, 4, 50), 9),
    ],
)
def test_the_distribution_is_that_of_throwing_away(
    distribution: Distribution, other_levels: int
) -> None:
    ours, theirs = drawn(distribution, 1_200), rejected(distribution, 1_200, Random(1))
    for name, p in feature_ps(ours, theirs).items():
        assert p > 1e-4, name
    other = drawn(replace(distribution, levels=other_levels), 1_200)
    assert min(feature_ps(other, theirs).values()) < 1e-4  # the test can fail


def test_operators_and_digits_are_uniform() -> None:
    tokens = Counter(token for e in drawn(Distribution(5, 5, 10, 50), 2_000) for token in e)
    for group in (range(1, 4), range(4, 14)):
        counts = torch.tensor([tokens[token] for token in group])
        assert chi_square_p(counts, torch.ones(len(group)) / len(group)) > 1e-4


def test_impossible_distributions_are_errors() -> None:
    with pytest.raises(ValueError, match="depth=6, but it lies between 1 and levels=5"):
        Distribution(6, 5, 4, 50)
    with pytest.raises(ValueError, match="depth=0, but it lies between 1 and levels=5"):
        Distribution(0, 5, 4, 50)
    with pytest.raises(ValueError, match=r"longest=24\) allows no expression; allow other lengths"):
        drawn(Distribution(8, 8, 4, 24), 1)  # 8 operators, 8 brackets and 9 digits are 25
