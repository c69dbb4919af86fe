"""Random expressions of a given depth and length, drawn from the exact conditional distribution.

The generator behind the paper's data (Nangia and Bowman, 2018) grows a tree from an operator at
level 1. An argument at level 2, 3, ... is an operator with probability 1/4, else a digit; below
level ``levels`` it is always a digit. An operator has 2 to 5 arguments. Their number, the operators
and the digits are uniform. What has the wrong depth or length is thrown away, and for deep trees
within 50 tokens that is nearly everything.

Here nothing is thrown away. The probability of a shape with n tokens is 4^(1-n) times 3 for each
digit down to level ``levels`` and 4 for each digit below: an operator and its bracket are two
tokens, and 1/4 for being an operator times 1/4 for the number of its arguments is 4^-2; the root is
an operator anyway, hence the 1. So weights are whole numbers. They are summed over all shapes
of a depth and length, and a shape is drawn from the root down by these sums.

The same seed gives the same expressions on every machine and with every version of Python: all that
is relied on is ``random()`` of ``random.Random(int)``, which Python promises to keep, arithmetic of
whole numbers, and their quotient, which is correctly rounded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from random import Random
from typing import Literal, TypeVar

from .expressions import CLOSE, MIN, ZERO, Expression

_COUNTS = range(2, 6)  # of the arguments of an operator
_SHORTEST = 4  # tokens of an expression

Part = Literal["any", "reaching", "short"]
"""A part of a tree may have operators at the deepest level; or has one there; or has none.

Parts are single arguments, and rows of arguments.
"""

_Choice = TypeVar("_Choice")
_Table = tuple[list[float], list[_Choice]]


@dataclass(frozen=True)
class Distribution:
    """The generator's distribution, given that the deepest operator is at level ``depth``.

    The length in tokens lies between ``shortest`` and ``longest``.
    """

    depth: int
    levels: int
    shortest: int
    longest: int

    def __post_init__(self) -> None:
        if not 1 <= self.depth <= self.levels:
            raise ValueError(f"depth={self.depth}, but it lies between 1 and levels={self.levels}.")


def expressions(distribution: Distribution, source: Random) -> Iterator[Expression]:
    """Independent expressions without end."""
    lengths = range(distribution.shortest, distribution.longest + 1)
    root = _table({length: _root_weight(distribution, length) for length in lengths})
    if not root[1]:
        raise ValueError(f"{distribution} allows no expression; allow other lengths.")

    @cache  # tables are made when they are first needed
    def counts(part: Part, level: int, length: int) -> _Table[int]:
        return _table(
            {
                count: _row(distribution.levels, distribution.depth, part, level, count, length)
                for count in _COUNTS
            }
        )

    @cache
    def firsts(part: Part, level: int, count: int, length: int) -> _Table[tuple[int, Part, Part]]:
        return _table(_first_weights(distribution, part, level, count, length))

    random = source.random
    while True:
        limits, choices = root
        length = choices[bisect_right(limits, random())]
        tokens = bytearray()
        rows: list[tuple[Part, int, int, int]] = [("reaching", 1, 1, length)]  # still to be drawn
        while rows:
            part, level, count, left = rows.pop()
            if not count:
                tokens.append(CLOSE)
                continue
            limits, ways = firsts(part, level, count, left)
            size, first, rest = ways[bisect_right(limits, random())]
            rows.append((rest, level, count - 1, left - size))
            if size == 1:
                tokens.append(ZERO + int(10 * random()))
            else:
                tokens.append(MIN + int(3 * random()))
                inside: Part = "any" if level == distribution.depth else first  # here it is reached
                limits, choices = counts(inside, level + 1, size - 2)
                number = choices[bisect_right(limits, random())]
                rows.append((inside, level + 1, number, size - 2))
        yield bytes(tokens[:-1])  # the root is in a row of its own, which no bracket closes


def distinct(
    distribution: Distribution,
    count: int,
    source: Random,
    known: Collection[Expression] = frozenset(),
) -> list[Expression]:
    """The first ``count`` different expressions that are not ``known``, in random order.

    The order as drawn would not do: likely expressions come early, so that the first and the last
    of them would differ in distribution.
    """
    found: dict[Expression, None] = {}
    stream = expressions(distribution, source)
    while len(found) < count:
        expression = next(stream)
        if expression not in known:
            found[expression] = None
    keys = [source.random() for _ in found]  # random.shuffle may change with Python
    return [each for _, each in sorted(zip(keys, found, strict=True))]


def _table(weights: Mapping[_Choice, int]) -> _Table[_Choice]:
    """The choices, and the upper limits of their shares of [0, 1)."""
    possible = {choice: weight for choice, weight in weights.items() if weight}
    total = sum(possible.values())
    return [limit / total for limit in accumulate(possible.values())], list(possible)


# A weight is 4^tokens times a probability; for parts of a tree the factor of the root is left out.


def _root_weight(distribution: Distribution, length: int) -> int:
    return _tree(distribution.levels, distribution.depth, "reaching", 1, length) << 2 * (
        distribution.longest - length
    )


def _first_weights(
    distribution: Distribution, part: Part, level: int, count: int, length: int
) -> dict[tuple[int, Part, Part], int]:
    """What the first of ``count`` arguments can be: its tokens, its part, the part of the rest.

    If the arguments must reach the deepest level, the first one that does frees the rest.
    """
    ways: list[tuple[int, Part, Part]] = []
    for size in range(_SHORTEST, length - count + 2):
        if part == "reaching":
            ways += [(size, "reaching", "any"), (size, "short", part)]
        else:
            ways.append((size, part, part))
    weights = {
        (size, first, rest): _tree(distribution.levels, distribution.depth, first, level, size)
        * _row(distribution.levels, distribution.depth, rest, level, count - 1, length - size)
        for size, first, rest in ways
    }
    digit = _digit(distribution.levels, level)
    weights[1, "short", part] = digit * _row(
        distribution.levels, distribution.depth, part, level, count - 1, length - 1
    )
    return weights


@cache
def _tree(levels: int, depth: int, part: Part, level: int, length: int) -> int:
    """The weight of all trees of a length that start with an operator at a level."""
    if part == "reaching":
        every = _tree(levels, depth, "any", level, length)
        return every - _tree(levels, depth, "short", level, length)
    if level > depth - (part == "short"):
        return 0
    return sum(_row(levels, depth, part, level + 1, count, length - 2) for count in _COUNTS)


@cache
def _row(levels: int, depth: int, part: Part, level: int, count: int, length: int) -> int:
    """The weight of all rows of ``count`` arguments that have a length together."""
    if part == "reaching":
        every = _row(levels, depth, "any", level, count, length)
        return every - _row(levels, depth, "short", level, count, length)
    if count == 0 or length < count:
        return int(count == length == 0)
    weight = _digit(levels, level) * _row(levels, depth, part, level, count - 1, length - 1)
    for size in range(_SHORTEST, length - count + 2):
        if tree := _tree(levels, depth, part, level, size):
            weight += tree * _row(levels, depth, part, level, count - 1, length - size)
    return weight


def _digit(levels: int, level: int) -> int:
    return 3 if level <= levels else 4
