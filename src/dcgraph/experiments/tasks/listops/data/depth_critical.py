"""Expressions that cannot be answered without their deepest operators.

Ordinary expressions hardly test depth: most inner values are lost on the way up, and a parser that
resolves three levels of five is right nearly always. Hence these definitions.

- The *level* of an operator is the number of operators from the root to it, both counted.
- An operator *matters* if a 0 in place of its value makes the answer smaller, and a 9 greater: in
  ``[MAX 8 [MIN 6 7 ] ]`` a 9 changes the answer, but 8 is right without the MIN. No operator's
  value falls when an argument rises, so those around one that matters matter too.
- The *dependency depth* of an expression is the level of the deepest operator that matters, or 0.
- The *shallow reading* of j levels is what a parser computes that sees the operators of j levels
  only, and takes the digits further down for arguments of the last operator seen.
- An expression of depth d is *depth-critical* if its dependency depth is d too, and all its shallow
  readings of fewer than d levels give wrong answers.

So a parser of j levels is right about every depth-critical expression of depth j or less, and wrong
about every deeper one.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from .expressions import CLOSE, MIN, ZERO, Expression, tree_of
from .generator import Distribution, expressions

_Span = tuple[int, int]  # first token and end


def dependency_depth(expression: Expression) -> int:
    """The level of the deepest operator that matters.

    >>> from .expressions import parse
    >>> dependency_depth(parse("[MIN 7 [MAX 1 [MIN 2 3 ] ] ]"))
    3
    >>> dependency_depth(parse("[MIN 7 [MAX 5 [MIN 2 3 ] ] ]"))  # with 0 instead of 2 it is 5 too
    2
    """
    answer = _value(expression)
    deepest = int(0 < answer < 9)
    (_, root), *others = _operators(expression)
    for level, span in others:
        if level > deepest:
            low, high = (_value(_with_digit(expression, root, span, digit)) for digit in (0, 9))
            if low < answer < high:
                deepest = level
    return deepest


def shallow(expression: Expression, levels: int) -> Expression:
    """The expression in a shallow reading: without the brackets further down.

    >>> from .expressions import parse, text_of
    >>> text_of(shallow(parse("[MAX 1 [MIN 2 [MED 3 4 ] 5 ] ]"), 2))
    '[MAX 1 [MIN 2 3 4 5 ] ]'
    """
    kept = bytearray()
    level = 0
    for token in expression:
        level += CLOSE < token < ZERO
        if token >= ZERO or level <= levels:
            kept.append(token)
        level -= token == CLOSE
    return bytes(kept)


def is_critical(expression: Expression) -> bool:
    """Whether the expression is depth-critical."""
    tree = tree_of(expression)
    readings = (_value(shallow(expression, levels)) for levels in range(1, tree.depth))
    return tree.values[0] not in readings and dependency_depth(expression) == tree.depth


def critical(
    distribution: Distribution,
    count: int,
    source: Random,
    known: Collection[Expression] = frozenset(),
) -> list[Expression]:
    """Different depth-critical expressions that are not ``known``.

    A shape is drawn from the distribution. On the way up from its leftmost deepest operator the
    labels around it, operators and digits, are drawn anew until it matters; then what has a right
    shallow reading is thrown away. This is not the distribution conditioned on being
    depth-critical, for which nearly all draws at depth 8 would be in vain.
    """
    found: dict[Expression, None] = {}
    stream = expressions(distribution, source)
    while len(found) < count:
        expression = _made_to_matter(next(stream), source)
        if expression not in known and is_critical(expression):
            found[expression] = None
    return list(found)


def _made_to_matter(expression: Expression, source: Random) -> Expression:
    tokens = bytearray(expression)
    operators = _operators(expression)
    _, (deepest, _) = max(operators, key=lambda operator: operator[0])  # the leftmost of several
    *around, (start, stop) = [span for _, span in operators if span[0] <= deepest < span[1]]
    while not 0 < (value := _value(bytes(tokens[start:stop]))) < 9:
        _draw_labels(tokens, start, stop, source)
    values = [0, value, 9]  # too small, right, too large
    for outer in reversed(around):
        inner = (start, stop)
        while True:
            through = [_value(_with_digit(tokens, outer, inner, digit)) for digit in values]
            if through[0] < through[1] < through[2]:
                break
            _draw_labels(tokens, outer[0], start, source)
            _draw_labels(tokens, stop, outer[1], source)
        values = through
        start, stop = outer
    return bytes(tokens)


def _draw_labels(tokens: bytearray, start: int, stop: int, source: Random) -> None:
    for position in range(start, stop):
        if tokens[position] >= ZERO:
            tokens[position] = ZERO + int(10 * source.random())
        elif tokens[position] != CLOSE:
            tokens[position] = MIN + int(3 * source.random())


def _with_digit(tokens: bytes | bytearray, outer: _Span, inner: _Span, digit: int) -> Expression:
    """The expression in the outer span, with a digit in place of the one in the inner span."""
    return b"".join(
        [tokens[outer[0] : inner[0]], bytes([ZERO + digit]), tokens[inner[1] : outer[1]]]
    )


def _operators(expression: Expression) -> list[tuple[int, _Span]]:
    """Level and span of each operator's expression, from left to right."""
    found: list[tuple[int, _Span]] = []
    opened: list[int] = []
    for position, token in enumerate(expression):
        if token == CLOSE:
            start = opened.pop()
            found.append((len(opened) + 1, (start, position + 1)))
        elif token < ZERO:
            opened.append(position)
    return sorted(found, key=lambda operator: operator[1][0])


def _value(expression: Expression) -> int:
    return tree_of(expression).values[0]
