"""What a model read in an expression, beside the truth; the tree as text, and drawn on a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

import torch

from ...engine.files import write_atomically
from .data.expressions import CLOSE, TOKENS, ZERO, Expression, Tree, text_of, tree_of
from .data.sets import ROUNDS, tensors_of
from .decoding import Decoded, TreeDecoder, groups, levels

_LEFT, _CELL = 74, 38  # room for the names of the rows; a token
_LEVEL, _ROW, _EDGE = 58, 22, 14
_HALF_WIDTH, _HALF_HEIGHT = 17, 17  # of a node


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
    decoder: TreeDecoder, expressions: Sequence[Expression], rounds: int | None = None
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
    decoder: TreeDecoder, expressions: Sequence[Expression], rounds: int | None = None
) -> list[int]:
    """Only the answers, which is faster."""
    found: dict[int, int] = {}
    for group, decoded in _decoded(decoder, expressions, rounds):
        found |= zip(group, decoded.answers.tolist(), strict=True)
    return [found[k] for k in range(len(expressions))]


def _decoded(
    decoder: TreeDecoder, expressions: Sequence[Expression], rounds: int | None
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


# As a page


def write_page(path: Path, readings: Sequence[Reading], model: str) -> None:
    """Write the page: a drawing of each reading, and the same as text."""
    # Here, because most readings are never drawn, and jinja2 takes a while to load.
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    # Whatever comes from outside is escaped; only our own SVG is not.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.from_string((files(__package__) / "page.html").read_text())
    shown = [
        {
            "expression": text_of(reading.expression),
            "answer": reading.answer,
            "right": reading.right,
            "verdict": reading.verdict,
            "mistakes": _mistakes(reading),
            "rounds": len(reading.values),
            "svg": Markup(drawing(reading)),
            "text": reading.text(),
        }
        for reading in readings
    ]
    text = template.render(model=model, shown=shown)
    page = text.encode(errors="replace")  # a command may have what is no character
    write_atomically(path, lambda draft: draft.write_bytes(page))


def _mistakes(reading: Reading) -> str:
    """The mistakes in numbers, as ``dcgraph evaluate`` counts them."""
    tokens = range(1, len(reading.expression))
    edges = [reading.misplaced(k) for k in tokens if reading.expression[k] != CLOSE]
    values = [reading.miscomputed(k) for k in tokens if CLOSE < reading.expression[k] < ZERO]
    said = f"{edges.count(False)} of {len(edges)} edges are right"
    if values:
        said += f", {values.count(False)} of {len(values)} intermediate values"
    return said


def drawing(reading: Reading) -> str:
    """The tree that the model chose above the tokens, and below them their values in each round."""
    outline = reading.outline()
    place = {
        node.position: (_x(node.position), _EDGE + _HALF_HEIGHT + _LEVEL * node.level)
        for node in outline
    }
    foot = max(y for _, y in place.values()) + _HALF_HEIGHT + _EDGE
    parts = [_edges(reading, place)]
    parts += [_node(reading, position, x, y) for position, (x, y) in place.items()]
    parts.append(_rounds(reading, foot))
    width = _LEFT + _CELL * len(reading.expression) + _EDGE
    height = foot + _ROW * (len(reading.values) + 1) + _EDGE
    label = f"tree and values of {text_of(reading.expression)}: {reading.answer}, {reading.verdict}"
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _x(position: int) -> int:
    return _LEFT + _CELL * position + _CELL // 2


def _edges(reading: Reading, place: dict[int, tuple[int, int]]) -> str:
    """Lines from children to parents; those that should be there but are not are dotted.

    Right ones run between the levels, where they cross nothing, wrong ones straight.
    """
    drawn = []
    for position, (x, y) in place.items():
        parent, true_parent = reading.parents[position], reading.truth.parents[position]
        if parent < 0:
            continue
        above_x, above_y = place[parent]
        straight = f"M{x} {y}L{above_x} {above_y}"
        if reading.misplaced(position):
            true_x, true_y = place[true_parent]
            drawn.append(f'<path class="missed" d="M{x} {y}L{true_x} {true_y}"/>')
            drawn.append(f'<path class="edge wrong" d="{straight}"/>')
        else:
            between = f"M{x} {y}V{above_y + _LEVEL // 2}H{above_x}V{above_y}"
            drawn.append(f'<path class="edge" d="{between if y > above_y else straight}"/>')
    return "".join(drawn)


def _node(reading: Reading, position: int, x: int, y: int) -> str:
    token = reading.expression[position]
    wrong = " wrong" if reading.marks(position) else ""
    title = "; ".join(reading.marks(position))
    inside = f"<title>{escape(title)}</title>" if title else ""
    w, h = _HALF_WIDTH, _HALF_HEIGHT
    box = f'<rect x="{x - w}" y="{y - h}" width="{2 * w}" height="{2 * h}" '
    box += f'rx="{w if token >= ZERO else 6}"/>'
    miscomputed = reading.miscomputed(position)
    if token == CLOSE or (token >= ZERO and not miscomputed):
        text = _text(x, y + 5, reading.name(position), "value")
    else:
        kind = "value wrong" if miscomputed else "value"
        text = _text(x, y - 3, reading.name(position), "name")
        text += _text(x, y + 13, str(reading.value(position)), kind)
    return f'<g class="node{wrong}">{inside}{box}{text}</g>'


def _rounds(reading: Reading, top: int) -> str:
    """A row of the tokens, and one for each round.

    A value can be right as soon as there were as many rounds as levels below it; before that it is
    drawn faintly.
    """
    height = heights(reading)
    parts = [f'<path class="rule" d="M{_EDGE} {top}H{_x(len(height)) - _CELL // 2}"/>']
    rows = [("tokens", [(TOKENS[token], "name") for token in reading.expression])]
    for number, values in enumerate(reading.values, 1):
        cells = []
        for k, value in enumerate(values):
            truth = reading.truth.values[k]
            early = truth < 0 or number < height[k]
            kind = "early" if early else "value" if value == truth else "value wrong"
            cells.append(("·" if truth < 0 else str(value), kind))
        rows.append((f"round {number}", cells))
    for row, (name, cells) in enumerate(rows):
        y = top + _ROW * row + 16
        parts.append(f'<text class="row" x="{_EDGE}" y="{y}">{name}</text>')
        parts += [_text(_x(k), y, text, kind) for k, (text, kind) in enumerate(cells)]
    return "".join(parts)


def heights(reading: Reading) -> list[int]:
    """How many levels of operators the expression that starts at a token has; 0 for digits."""
    height = [int(CLOSE < token < ZERO) for token in reading.expression]
    for position in range(len(height) - 1, 0, -1):  # children stand behind their parents
        if height[position]:
            parent = reading.truth.parents[position]
            height[parent] = max(height[parent], height[position] + 1)
    return height


def _text(x: int, y: int, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="middle">{escape(text)}</text>'
