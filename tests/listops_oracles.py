"""ListOps written another way: nested lists for trees, recursion for values; and samples."""

from __future__ import annotations

import hashlib
import itertools
import re
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from random import Random

import torch
from hypothesis import strategies as st
from torch import Tensor

from dcgraph.experiments.tasks.listops.data import generator, sets
from dcgraph.experiments.tasks.listops.data.expressions import Expression
from dcgraph.experiments.tasks.listops.data.generator import Distribution

Nested = int | tuple[str, list["Nested"]]

FUNCTIONS: dict[str, Callable[[list[int]], int]] = {
    "MIN": min,
    "MAX": max,
    "MED": lambda arguments: int(statistics.median(arguments)),
}


def value_of(tree: Nested) -> int:
    return tree if isinstance(tree, int) else FUNCTIONS[tree[0]]([value_of(a) for a in tree[1]])


def depth_of(tree: Nested) -> int:
    return 0 if isinstance(tree, int) else 1 + max(map(depth_of, tree[1]))


def written(tree: Nested) -> str:
    if isinstance(tree, int):
        return str(tree)
    return f"[{tree[0]} {' '.join(map(written, tree[1]))} ]"


def flat(tree: Nested, parent: int = -1, first: int = 0) -> list[tuple[int, int]]:
    """Parent and value of each token."""
    if isinstance(tree, int):
        return [(parent, tree)]
    found = [(parent, value_of(tree))]
    for argument in tree[1]:
        found += flat(argument, first, first + len(found))
    return [*found, (first, -1)]


def evaluated(text: str) -> int:
    """By Python itself."""
    called = re.sub(r"\[(M..)", r"\1([", text).replace("]", "])")
    called = re.sub(r"(?<=[0-9)]) (?=[0-9M])", ",", called)
    return int(eval(called, {}, FUNCTIONS))


def operators_over(trees: st.SearchStrategy[Nested]) -> st.SearchStrategy[Nested]:
    return st.tuples(st.sampled_from(list(FUNCTIONS)), st.lists(trees, min_size=1, max_size=6))


TREES = operators_over(st.recursive(st.integers(0, 9), operators_over, max_leaves=30))


def homogeneity_p(first: Sequence[object], second: Sequence[object], least: int = 10) -> float:
    """p-value of the chi-square test that two samples are alike; rare classes are merged."""
    counts = [Counter(first), Counter(second)]
    common = [x for x, n in (counts[0] + counts[1]).items() if n >= 2 * least]
    table = torch.tensor([[each[x] for x in common] for each in counts], dtype=torch.float64)
    totals = torch.tensor([len(first), len(second)], dtype=torch.float64)
    table = torch.cat([table, (totals - table.sum(1)).unsqueeze(1)], 1)
    table = table[:, table.sum(0) > 0]
    expected = totals.unsqueeze(1) * table.sum(0) / totals.sum()
    statistic = ((table - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor(table.shape[1] - 1.0) / 2, statistic / 2))


def operator_levels(expression: Expression) -> list[int]:
    """The level of each operator."""
    steps = itertools.accumulate((0 < token < 4) - (token == 0) for token in expression)
    return [level for level, token in zip(steps, expression, strict=True) if 0 < token < 4]


def drawn(distribution: Distribution, count: int, seed: int = 0) -> list[Expression]:
    return [*itertools.islice(generator.expressions(distribution, Random(seed)), count)]


def spans(text: str) -> list[tuple[int, int, int]]:
    """Level, start and end in characters of each operator's expression."""
    found, opened = [], []
    for place, character in enumerate(text):
        if character == "[":
            opened.append(place)
        if character == "]":
            start = opened.pop()
            found.append((len(opened) + 1, start, place + 1))
    return found


def fingerprint(some: dict[str, list[Expression]]) -> str:
    digest = hashlib.sha256()
    for name, expressions_ in some.items():
        digest.update(name.encode() + b"".join(expressions_))
    return digest.hexdigest()[:16]


@cache
def everything() -> dict[str, list[Expression]]:
    """The 128,000 expressions of seed 0: once in a process, for they take seconds."""
    return sets.generate(0)


def distance(ratio: tuple[Tensor, Tensor], published: float, examples: int, unit: float) -> float:
    """How far a ratio of sums is from the published one, in standard errors of the difference.

    ``unit`` is the last digit given; the published number may be off by half of it.
    """
    above, below = (part.double() for part in ratio)
    ours = above.sum() / below.sum()
    variance = (above - ours * below).square().mean() / below.mean() ** 2
    error = (variance * (1 / examples + 1 / len(above))).sqrt()
    return float((abs(ours - published) - unit / 2).clamp(min=0) / error)


def compare(rows: dict[str, tuple[tuple[Tensor, Tensor], float, float]], examples: int) -> None:
    distances = {
        name: distance(ratio, published, examples, unit)
        for name, (ratio, published, unit) in rows.items()
    }
    assert max(distances.values()) < 4, distances
