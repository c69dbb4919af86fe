"""Charts as inline SVG. Colours are CSS classes, so that they follow light, dark and print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 420, 240
COLOURS = 8
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 10, 10, 36
_LEVELS = 8  # shades of a map
_POWERS = 12  # powers of ten on a logarithmic axis, at most
_LONGEST, _LETTER = 20, 7.2  # letters of a name, and the room for each of them

Number = int | float
Point = tuple[Number, Number | None]


@dataclass(frozen=True)
class Line:
    """One curve: points (x, y), a gap where y is None; ``colour`` counts from 0."""

    name: str
    points: Sequence[Point]
    colour: int
    bold: bool = False


@dataclass(frozen=True)
class _Axis:
    """From values to places on the page."""

    low: Number
    high: Number
    start: Number
    end: Number
    logarithmic: bool = False

    def place(self, value: Number) -> float:
        if self.logarithmic:
            value = math.log10(max(value, 10**self.low))
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[Number]:
        if self.logarithmic:
            powers = range(math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9) + 1)
            every = max(1, math.ceil(len(powers) / 5))
            if len(powers) > 1:
                return [10.0**power for power in powers if power % every == 0]
            thirds = (0.1, 0.5, 0.9)  # of an axis that has no two powers of ten
            return [float(f"{10 ** (self.low + k * (self.high - self.low)):.2g}") for k in thirds]
        step = nice_step(self.high - self.low)
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def nice_step(span: Number, ticks: int = 5) -> float:
    """A round distance between ticks: 1, 2 or 5 times a power of ten.

    >>> [nice_step(span) for span in (1.0, 30, 0.07)]
    [0.2, 10.0, 0.02]
    """
    rough = span / ticks
    power = 10.0 ** math.floor(math.log10(rough))
    factor = next(f for f in (1, 2, 5, 10) if f * power >= rough * 0.999)
    return float(f"{factor * power:.6g}")


def line_chart(
    lines: Sequence[Line],
    *,
    label: str,
    x_label: str,
    y_label: str,
    y_range: tuple[Number, Number] | None = None,
    logarithmic: bool = False,
) -> str:
    """Curves over a common axis; ``label`` says to a screen reader what there is to see.

    With ``logarithmic`` the y axis has at most twelve powers of ten; what lies below, such as 0, is
    drawn at its end.
    """
    known = [(x, y) for line in lines for x, y in line.points if y is not None]
    if not known:
        return ""
    low, high = y_range or span([y for _, y in known], logarithmic)
    x_axis = _Axis(0.0, max(x for x, _ in known) or 1.0, _LEFT, WIDTH - _RIGHT)
    y_axis = _Axis(low, high, HEIGHT - _BOTTOM, _TOP, logarithmic)
    drawn = [_axes(x_axis, y_axis, x_label, y_label)]
    for line in sorted(lines, key=lambda line: line.bold):  # means lie on top
        drawn.append(_curve(line, x_axis, y_axis))
    return _svg(label, "".join(drawn))


def span(values: Sequence[Number], logarithmic: bool) -> tuple[Number, Number]:
    """The ends of an axis that has all values; of a logarithmic one, as powers of ten."""
    if logarithmic:
        powers = [math.log10(value) for value in values if value > 0] or [0.0]
        top, bottom = math.ceil(max(powers)), math.floor(min(powers))
        return max(bottom, top - _POWERS), max(top, bottom + 1)
    low, high = min(0.0, *values), max(values)
    return low, high if high > low else low + 1


def _axes(
    x_axis: _Axis, y_axis: _Axis, x_label: str, y_label: str, names: Sequence[str] = ()
) -> str:
    parts = []
    for value in y_axis.ticks():
        y = y_axis.place(value)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>')
        parts.append(_text(_LEFT - 6, y + 4, number(value), "end"))
    numbers = [(value, number(value)) for value in x_axis.ticks()]
    ticks: Sequence[tuple[Number, str]] = list(enumerate(names)) or numbers
    for value, text in ticks:
        parts.append(_text(x_axis.place(value), HEIGHT - _BOTTOM + 15, text, "middle"))
    parts.append(f'<path class="axis" d="M{_LEFT} {HEIGHT - _BOTTOM}H{WIDTH - _RIGHT}"/>')
    parts.append(_text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 4, x_label, "middle"))
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    rotated = f'transform="rotate(-90 11 {middle:.0f})"'
    parts.append(_text(11, middle, y_label, "middle", rotated))
    return "".join(parts)


def _curve(line: Line, x_axis: _Axis, y_axis: _Axis) -> str:
    path, drawing = [], False
    for x, y in line.points:
        if y is not None:
            # "h0" is a line to where it begins: a point between two gaps shows as a dot.
            place = f"{x_axis.place(x):.1f} {y_axis.place(y):.1f}"
            path.append(f"L{place}" if drawing else f"M{place}h0")
        drawing = y is not None
    kind = "mean" if line.bold else "run"
    return (
        f'<path class="{kind} c{line.colour % COLOURS}" d="{"".join(path)}">'
        f"<title>{escape(line.name)}</title></path>"
    )


@dataclass(frozen=True)
class Dot:
    """A point with a name; a hollow one is ``kind`` "pruned", one to look at "best"."""

    x: Number
    y: Number
    name: str
    kind: str = ""


def scatter_chart(
    dots: Sequence[Dot],
    *,
    label: str,
    x_label: str,
    y_label: str,
    names: Sequence[str] = (),
    logarithmic: bool = False,
    line: Sequence[Point] = (),
) -> str:
    """Dots, each with its name for whoever points at it, and a line through some of them.

    Args:
        dots: in the order in which they are drawn.
        label: what there is to see, for a screen reader.
        x_label: of the x axis.
        y_label: of the y axis.
        names: of the places 0, 1, ... on the x axis, where these are no numbers.
        logarithmic: whether the x axis is.
        line: its points.
    """
    if not dots:
        return ""
    places = [dot.x for dot in dots]
    if logarithmic:
        places = [math.log10(place) for place in places]
    ends = (-0.5, len(names) - 0.5) if names else _wider(places)
    x_axis = _Axis(*ends, _LEFT, WIDTH - _RIGHT, logarithmic)
    y_axis = _Axis(*_wider([dot.y for dot in dots]), HEIGHT - _BOTTOM, _TOP)
    drawn = [_axes(x_axis, y_axis, x_label, y_label, names)]
    if line:
        drawn.append(_curve(Line("the best so far", line, 1, bold=True), x_axis, y_axis))
    for dot in dots:
        place = f'cx="{x_axis.place(dot.x):.1f}" cy="{y_axis.place(dot.y):.1f}"'
        kind = f"dot {dot.kind}".strip()
        drawn.append(
            f'<circle class="{kind}" {place} r="3.5"><title>{escape(dot.name)}</title></circle>'
        )
    return _svg(label, "".join(drawn))


def _wider(values: Sequence[Number]) -> tuple[float, float]:
    """The ends of an axis with a little room at both sides."""
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    return low - room, high + room


def heat_map(
    rows: Sequence[tuple[str, Sequence[Number]]],
    columns: Sequence[Number],
    *,
    label: str,
    x_label: str,
    y_label: str,
    colour: int,
) -> str:
    """Shades from 0 to the largest value; a row is a name and a value for each column.

    Long names get more room and are cut; whoever points at one sees all of it.
    """
    if not rows or not columns:
        return ""
    largest = max((value for _, values in rows for value in values), default=0.0) or 1.0
    top, bottom = _TOP, HEIGHT - _BOTTOM
    longest = max(len(_cut(name)) for name, _ in rows)
    left = max(_LEFT, 30 + math.ceil(_LETTER * longest))
    wide, high = (WIDTH - _RIGHT - left) / len(columns), (bottom - top) / len(rows)
    shades: dict[int, list[str]] = {}
    for r, (_, values) in enumerate(rows):
        for c, value in enumerate(values):
            level = round(_LEVELS * value / largest)
            if level:
                place = f"M{left + c * wide:.1f} {top + r * high:.1f}"
                shades.setdefault(level, []).append(f"{place}h{wide:.2f}v{high:.2f}h{-wide:.2f}z")
    parts = [
        f'<path class="fill c{colour % COLOURS}" fill-opacity="{level / _LEVELS:.2f}" '
        f'd="{"".join(cells)}"/>'
        for level, cells in sorted(shades.items())
    ]
    every = max(1, math.ceil(len(rows) * 11 / (bottom - top)))  # names need 11 units each
    for r, (name, _) in enumerate(rows):
        if r % every == 0:
            parts.append(_text(left - 6, top + (r + 0.5) * high + 4, _cut(name), "end", title=name))
    x_axis = _Axis(0.0, columns[-1] or 1.0, left, WIDTH - _RIGHT)
    for value in x_axis.ticks():
        parts.append(_text(x_axis.place(value), bottom + 15, number(value), "middle"))
    parts.append(f'<path class="axis" d="M{left} {bottom}H{WIDTH - _RIGHT}"/>')
    parts.append(_text((left + WIDTH - _RIGHT) / 2, HEIGHT - 4, x_label, "middle"))
    middle = (top + bottom) / 2
    parts.append(_text(11, middle, y_label, "middle", f'transform="rotate(-90 11 {middle:.0f})"'))
    return _svg(label, "".join(parts))


def number(value: Number) -> str:
    """Short, as on an axis.

    >>> [number(x) for x in (0.0, 0.30000000000000004, 20.0, 1e-04, 1e-05, 120000.0)]
    ['0', '0.3', '20', '1e-4', '1e-5', '1.2e5']
    """
    if value and not 1e-4 < abs(value) < 99_999.5:  # more digits would meet the label of the axis
        mantissa, _, exponent = f"{value:.2e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _text(
    x: Number, y: Number, text: str, anchor: str, more: str = "", title: str | None = None
) -> str:
    whole = f"<title>{escape(title)}</title>" if title is not None and title != text else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {place} {more}>{whole}{escape(text)}</text>"


def _svg(label: str, content: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">'
        f"{content}</svg>"
    )
