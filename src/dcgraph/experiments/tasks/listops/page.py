"""Trees, rounds and values of expressions on one page, as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from ...engine.files import write_atomically
from .expressions import CLOSE, TOKENS, ZERO, text_of
from .reading import Reading

_LEFT, _CELL = 74, 38  # room for the names of the rows; a token
_LEVEL, _ROW, _EDGE = 58, 22, 14
_HALF_WIDTH, _HALF_HEIGHT = 17, 17  # of a node


def write_page(path: Path, readings: Sequence[Reading], model: str) -> None:
    """Write the page: a drawing of each reading, and the same as text."""
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
    write_atomically(path, lambda draft: draft.write_text(text, encoding="utf-8"))


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
