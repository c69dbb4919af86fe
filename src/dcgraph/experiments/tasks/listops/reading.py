"""What a model read in an expression, beside the truth; and the tree as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from .decoding import Decoded, Decoder, groups, levels
from .expressions import CLOSE, TOKENS, ZERO, Expression, Tree, text_of, tree_of
from .sets import ROUNDS
from .tensors import tensors_of


@dataclass(frozen=True)
class Node:
    """A token in the tree that a model chose. ``last``: it and its ancestors are the last child."""

    position: int
    last: tuple[bool, ...]

    @property
    def level(self) -> int:
        return len(self.last)


@dataclass(frozen=True)
class Reading:
    """One expression: the truth, the parents that a model chose, and its values after each round.

    The root's parent is -1. (Where the model has chosen one, it is a random one: see
    ``LatentTree``.)
    """

    expression: Expression
    truth: Tree
    parents: list[int]
    values: list[list[int]]

    @property
    def answer(self) -> int:
        return self.values[-1][0]

    @property
    def right(self) -> bool:
        return self.answer == self.truth.values[0]

    @property
    def verdict(self) -> str:
        return "right" if self.right else f"wrong, it is {self.truth.values[0]}"

    def value(self, position: int) -> int:
        """The value of a token after the last round."""
        return self.values[-1][position]

    def misplaced(self, position: int) -> bool:
        """Whether a token hangs below a wrong parent; a closing bracket never does."""
        wrong = self.parents[position] != self.truth.parents[position]
        return wrong and self.expression[position] != CLOSE

    def miscomputed(self, position: int) -> bool:
        """Whether the value of a token is wrong; a closing bracket has none."""
        truth = self.truth.values[position]
        return truth >= 0 and self.value(position) != truth

    def children(self) -> dict[int, list[int]]:
        """The tokens below each one, by position; a closing bracket only if something is below it.

        Other brackets say nothing: they have no value, and which operator they close is plain.
        """
        shown: set[int] = set()
        for position, token in enumerate(self.expression):
            while token != CLOSE and position >= 0 and position not in shown:
                shown.add(position)
                position = self.parents[position]
        below: dict[int, list[int]] = {}
        for position in sorted(shown):
            if self.parents[position] >= 0:
                below.setdefault(self.parents[position], []).append(position)
        return below

    def outline(self) -> list[Node]:
        """The tree from the top, left to right; then what does not hang on the root."""
        below, nodes = self.children(), list[Node]()
        left = {0, *below, *(position for some in below.values() for position in some)}
        while left:
            top = 0 if not nodes else _top(self.parents, min(left))
            waiting = [Node(top, ())]
            while waiting:
                node = waiting.pop()
                left.remove(node.position)
                nodes.append(node)
                # Without the one where a loop began.
                some = [child for child in below.get(node.position, []) if child in left]
                waiting += [
                    Node(child, (*node.last, child == some[-1])) for child in reversed(some)
                ]
        return nodes

    def name(self, position: int) -> str:
        return TOKENS[self.expression[position]].removeprefix("[")

    def marks(self, position: int) -> list[str]:
        """What is wrong with a token."""
        marks = []
        if self.miscomputed(position):
            marks.append(f"it is {self.truth.values[position]}")
        if self.misplaced(position):
            parent = self.truth.parents[position]
            marks.append(f"belongs to {self.name(parent)}, token {parent + 1}")
        return marks

    def text(self) -> str:
        """The tree as lines, with the value of every operator, and marks where it is wrong."""
        lines = [f"{text_of(self.expression)} = {self.answer}  ({self.verdict})"]
        for node in self.outline():
            k, token = node.position, self.expression[node.position]
            stem = "".join("   " if last else "│  " for last in node.last[:-1])
            branch = ("└─ " if node.last[-1] else "├─ ") if node.last else ""
            plain = token == CLOSE or (token >= ZERO and not self.miscomputed(k))
            shown = self.name(k) if plain else f"{self.name(k)} = {self.value(k)}"
            marks = "; ".join(self.marks(k))
            lines.append(f"{stem}{branch}{shown}" + (f"   <- {marks}" if marks else ""))
        return "\n".join(lines)


def _top(parents: Sequence[int], position: int) -> int:
    """Where one ends going up: a bracket that sends nothing, or the first token of a loop."""
    seen: dict[int, int] = {}
    while position not in seen:
        if parents[position] < 0:
            return position
        seen[position] = len(seen)
        position = parents[position]
    return min(list(seen)[seen[position] :])


def read(
    decoder: Decoder, expressions: Sequence[Expression], rounds: int | None = None
) -> list[Reading]:
    """What a model makes of expressions, in their order; see :func:`_decoded` for the rounds."""
    readings: dict[int, Reading] = {}
    for group, decoded in _decoded(decoder, expressions, rounds):
        parents, values = decoded.parents.tolist(), decoded.values.tolist()
        for row, k in enumerate(group):
            expression, size = expressions[k], len(expressions[k])
            readings[k] = Reading(
                expression,
                tree_of(expression),
                [-1, *parents[row][1:size]],
                [after[row][:size] for after in values],
            )
    return [readings[k] for k in range(len(expressions))]


def answers(
    decoder: Decoder, expressions: Sequence[Expression], rounds: int | None = None
) -> list[int]:
    """The answers alone, which is faster."""
    found: dict[int, int] = {}
    for group, decoded in _decoded(decoder, expressions, rounds):
        found |= zip(group, decoded.answers.tolist(), strict=True)
    return [found[k] for k in range(len(expressions))]


def _decoded(
    decoder: Decoder, expressions: Sequence[Expression], rounds: int | None
) -> Iterator[tuple[list[int], Decoded]]:
    """Which expressions were decoded together, and what came out.

    Without ``rounds`` an expression has as many as the tree has levels that the model chose for it,
    and at least 5. Nothing of the true tree is used, and an answer does not depend on the company.
    """
    for group in groups(expressions):
        table = tensors_of([expressions[k] for k in group])
        tokens = table["tokens"].long()
        parents = decoder.choose(tokens, table["length"], table["parents"].long())
        if rounds is None:
            needed = levels(parents).clamp(min=ROUNDS)
        else:
            needed = torch.full((len(group),), rounds)
        for used in needed.unique().tolist():
            rows = (needed == used).nonzero().flatten()
            yield [group[k] for k in rows], decoder.follow(tokens[rows], parents[rows], used)
