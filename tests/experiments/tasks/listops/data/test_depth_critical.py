"""What depth-critical means, by brute force."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from dcgraph.experiments.tasks.listops.data import depth_critical, sets
from dcgraph.experiments.tasks.listops.data.expressions import Expression, text_of, tree_of
from listops_oracles import (
    compare,
    drawn,
    evaluated,
    everything,
    fingerprint,
    spans,
)


def replaced(text: str, start: int, stop: int, digit: int) -> int:
    """The answer with a digit in place of an inner expression."""
    changed = f"{text[:start]}{digit}{text[stop:]}"
    return evaluated(changed) if start else digit


def top_levels(text: str, levels: int) -> int:
    """The answer of a parser that sees so many levels."""
    inner = sorted((start, stop) for level, start, stop in spans(text) if level == levels + 1)
    for start, stop in reversed(inner):
        digits = " ".join(re.findall("[0-9]", text[start:stop]))
        text = text[:start] + digits + text[stop:]
    return evaluated(text)


CRITICAL_SIZE = 12


@pytest.fixture(scope="module")
def critical() -> dict[str, list[Expression]]:
    known = {each for some in everything().values() for each in some}
    return sets.generate_critical(0, known, CRITICAL_SIZE)


def test_the_answer_depends_on_the_deepest_level(critical: dict[str, list[Expression]]) -> None:
    """By brute force: every operator, every digit, every number of levels."""
    assert list(critical) == [f"critical-d{depth}" for depth in range(1, 9)]
    for depth, some in enumerate(critical.values(), 1):
        assert len(some) == CRITICAL_SIZE
        for text in map(text_of, some):
            assert len(text.split()) <= 50
            answer = evaluated(text)
            levels = []
            for level, start, stop in spans(text):
                answers = [replaced(text, start, stop, digit) for digit in range(10)]
                assert answers == sorted(answers)
                if answers[0] < answer < answers[9]:
                    levels.append(level)
            assert max(level for level, _, _ in spans(text)) == max(levels) == depth
            assert set(levels) == set(range(1, depth + 1))  # and on those around it
            readings = [top_levels(text, levels) for levels in range(1, depth + 3)]
            assert [reading == answer for reading in readings] == [False] * (depth - 1) + [True] * 3


def test_depth_critical_expressions_are_new(critical: dict[str, list[Expression]]) -> None:
    several = [each for some in (everything() | critical).values() for each in some]
    assert len(set(several)) == len(several) == 128_000 + 8 * CRITICAL_SIZE
    assert fingerprint(critical) == "6e21945520ee4e9f"


def test_dependency_depth_by_brute_force() -> None:
    for depth in (1, 3, 5):
        for expression in drawn(sets.distribution_of(depth), 100, seed=depth):
            text = text_of(expression)
            answer = evaluated(text)
            levels = [
                level
                for level, start, stop in spans(text)
                if replaced(text, start, stop, 0) < answer < replaced(text, start, stop, 9)
            ]
            assert depth_critical.dependency_depth(expression) == max(levels, default=0)
            for level in range(1, 6):
                read = tree_of(depth_critical.shallow(expression, level)).values[0]
                assert read == top_levels(text, level)
            assert depth_critical.is_critical(expression) == (
                max(levels, default=0) == depth
                and all(top_levels(text, level) != answer for level in range(1, depth))
            )


def test_ordinary_expressions_hardly_test_depth() -> None:
    """How often the deepest operators and the lower levels count, as in the paper's test set."""
    rows: dict[str, tuple[tuple[Tensor, Tensor], float, float]] = {}
    for depth, (share, unit) in {
        2: (0.80, 0.01), 3: (0.41, 0.01), 4: (0.16, 0.01), 5: (0.067, 0.001)
    }.items():  # fmt: skip
        counts = torch.tensor([*map(counts_at_the_deepest, everything()[f"test-d{depth}"][:400])])
        rows[f"depth {depth}"] = ((counts, torch.ones_like(counts)), share, unit)
    compare(rows, examples=4_000)
    levels = {
        2: (0.585,),
        3: (0.427, 0.830),
        4: (0.362, 0.758, 0.947),
        5: (0.330, 0.712, 0.917, 0.976),
    }
    rows = {}
    for depth, shares in levels.items():
        for level, share in enumerate(shares, 1):
            right = torch.tensor([read_right(e, level) for e in everything()[f"test-d{depth}"]])
            of = (right, torch.ones_like(right))
            rows[f"depth {depth}, {level} levels"] = (of, share, 0.001)
    compare(rows, examples=2_000)


def read_right(expression: Expression, levels: int) -> bool:
    read = tree_of(depth_critical.shallow(expression, levels)).values[0]
    return read == tree_of(expression).values[0]


def counts_at_the_deepest(expression: Expression) -> bool:
    """Whether some digit in place of some deepest operator changes the answer."""
    text = text_of(expression)
    answer = evaluated(text)
    deepest = max(level for level, _, _ in spans(text))
    return any(
        replaced(text, start, stop, digit) != answer
        for level, start, stop in spans(text)
        if level == deepest
        for digit in (0, 9)
    )
