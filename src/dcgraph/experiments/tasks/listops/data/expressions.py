"""The language of ListOps: ``[MAX 2 9 [MIN 4 7 ] 0 ]`` is 9; from text to tokens, tree and values.

An expression is an operator, its arguments and a closing bracket; an argument is a digit or an
expression. In files each line holds one expression, a tab and its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ....engine.errors import DataError
from ....engine.files import read_bytes, write_atomically

TOKENS: tuple[str, ...] = ("]", "[MIN", "[MAX", "[MED", *"0123456789")
"""The vocabulary; a token's number is its place here."""
CLOSE, MIN, MAX, MED, ZERO = range(5)

Expression = bytes
"""The numbers of the tokens: compact, and ready for sets and tensors."""

_NUMBER_OF = {token: number for number, token in enumerate(TOKENS)}
_KNOWN = "[MIN, [MAX, [MED, ] and the digits 0 to 9"


@dataclass(frozen=True, slots=True)
class Tree:
    """What an expression means, with one entry per token.

    ``parents``: the position of the operator that a token is an argument of; a ``]`` belongs to
    the operator that it closes, and the root has -1. ``values``: the value of the expression that
    starts at a token; that of a ``]`` is -1. ``depth`` is the number of operators on the longest
    way from the root to a digit.
    """

    parents: list[int]
    values: list[int]
    depth: int


def parse(text: str) -> Expression:
    """The tokens of an expression; a ValueError says in one line what is wrong with it.

    Space around brackets may be left out.

    >>> list(parse("[MAX 2 9 [MIN 4 7] 0]"))
    [2, 6, 13, 1, 8, 11, 0, 4, 0]
    """
    numbers = bytearray()
    for token in text.replace("[", " [").replace("]", " ] ").split():
        if token not in _NUMBER_OF:
            shown = token if len(token) <= 20 else f"{token[:20]}..."
            raise ValueError(f"{shown!r} is not a token; use {_KNOWN}.")
        numbers.append(_NUMBER_OF[token])
    expression = bytes(numbers)
    tree_of(expression)  # for its complaints
    return expression


def text_of(expression: Expression) -> str:
    """The expression as text.

    >>> text_of(parse("[MED 3 [MIN 4 7] 1]"))
    '[MED 3 [MIN 4 7 ] 1 ]'
    """
    return " ".join([TOKENS[number] for number in expression])


def median(arguments: Sequence[int]) -> int:
    """The middle one, or the mean of the two in the middle, rounded down.

    >>> median([7, 2, 9, 4])
    5
    """
    ordered, count = sorted(arguments), len(arguments)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) // 2


OPERATORS: dict[int, Callable[[list[int]], int]] = {MIN: min, MAX: max, MED: median}


def tree_of(expression: Expression) -> Tree:
    """Parents, values and depth; a ValueError says what is wrong with a malformed expression.

    >>> tree = tree_of(parse("[MAX 2 9 [MIN 4 7 ] 0 ]"))
    >>> tree.parents
    [-1, 0, 0, 0, 3, 3, 3, 0, 0]
    >>> tree.values
    [9, 2, 9, 4, 4, 7, -1, 0, -1]
    >>> tree.depth
    2
    """
    size = len(expression)
    if not size or not CLOSE < expression[0] < ZERO:
        start = f"starts with {TOKENS[expression[0]]!r}" if size else "is empty"
        raise ValueError(f"the expression {start}; begin with [MIN, [MAX or [MED.")
    parents, values = [-1] * size, [-1] * size
    depth, operator = 0, -1  # the operator whose arguments are read now
    arguments: list[int] = []
    around: list[tuple[int, list[int]]] = []  # those outside it
    for position, token in enumerate(expression):
        if operator < 0 < position:
            raise ValueError(
                f"{TOKENS[token]!r} comes after the last bracket is closed, at token {position + 1}"
                "; write one expression, with one ] for each operator."
            )
        if token >= ZERO:
            parents[position] = operator
            values[position] = token - ZERO
            arguments.append(token - ZERO)
        elif token != CLOSE:
            parents[position] = operator
            around.append((operator, arguments))
            operator, arguments = position, []
            depth = max(depth, len(around))
        else:
            if not arguments:
                raise ValueError(
                    f"{TOKENS[expression[operator]]} at token {operator + 1} has no argument; "
                    "give it at least one."
                )
            value = values[operator] = OPERATORS[expression[operator]](arguments)
            parents[position] = operator
            operator, arguments = around.pop()
            arguments.append(value)
    if operator >= 0:
        number = f"{len(around)} brackets are" if len(around) > 1 else "1 bracket is"
        raise ValueError(f"{number} not closed; add as many ].")
    return Tree(parents, values, depth)


def read(path: Path) -> list[Expression]:
    """The expressions of a file; blank lines are skipped, and every value is checked."""
    expressions = []
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            expressions.append(_checked(line))
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {error}") from None
    if not expressions:
        raise DataError(f"{path} has no expressions; write one, a tab and its value per line.")
    return expressions


def write(path: Path, expressions: Iterable[Expression]) -> None:
    """A file that :func:`read` reads: all of it or nothing."""
    lines = [f"{text_of(each)}\t{tree_of(each).values[0]}\n" for each in expressions]
    try:
        write_atomically(path, lambda draft: draft.write_bytes("".join(lines).encode()))
    except OSError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror}; name a folder that can be written."
        ) from error


def _lines(path: Path) -> list[str]:
    try:
        content = read_bytes(path)
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror}; name a file of expressions."
        ) from error
    try:
        return content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {number}: not text; name a file of expressions.") from error


def _checked(line: str) -> Expression:
    """The expression of one line, if its value is as the line says."""
    text, _, value = line.partition("\t")
    said = value.strip()
    if not said:
        raise ValueError("the value is missing; write it after the expression and a tab.")
    expression = parse(text)
    if said not in TOKENS[ZERO:]:
        shown = said if len(said) <= 20 else f"{said[:20]}..."
        raise ValueError(f"the value is {shown!r}, but it must be a digit 0 to 9.")
    truth = tree_of(expression).values[0]
    if int(said) != truth:
        raise ValueError(f"the value is {said}, but the expression is {truth}; correct it.")
    return expression
