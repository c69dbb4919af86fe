"""Charts are drawn to scale, and stay inside their frames."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from dcgraph.experiments.report import charts


def drawn(svg: str) -> str:
    (path,) = [p for p in ElementTree.fromstring(svg).iter("path") if "mean" in p.attrib["class"]]
    return path.attrib["d"]


def points(svg: str) -> list[tuple[float, float]]:
    places = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", drawn(svg))
    return [(float(x), float(y)) for x, y in places]


def chart(values: list[float | None], **options: Any) -> str:
    line = charts.Line("a", list(enumerate(values)), 0, bold=True)
    return charts.line_chart([line], label="l", x_label="x", y_label="y", **options)


def test_a_curve_is_drawn_to_scale() -> None:
    (_, bottom), (_, middle), (right, top) = points(chart([0.0, 1.0, 2.0]))
    assert bottom - middle == pytest.approx(middle - top, abs=0.11) and bottom > top
    assert right == charts.WIDTH - 10
    low, mid, high = points(chart([1e-4, 1e-2, 1.0], logarithmic=True))
    assert low[1] - mid[1] == pytest.approx(mid[1] - high[1], abs=0.11)
    (left, _), (right, _) = points(chart([1.0, None, 1.0]))
    assert right > left and "L" not in drawn(chart([1.0, None, 1.0])), "two dots, a gap between"


@pytest.mark.parametrize(
    ("values", "logarithmic"),
    [([0.0], False), ([5.0, 5.0], False), ([-1.0, 1.0], False), ([0.0, 1e-30, 1.0], True),
     ([0.0, 0.0], True), ([1e-3], True)],
)  # fmt: skip
def test_odd_curves_stay_inside_the_chart(values: list[float | None], logarithmic: bool) -> None:
    places = points(chart(values, logarithmic=logarithmic))
    assert len(places) == len(values)
    for x, y in places:
        assert 0 <= x <= charts.WIDTH and 0 <= y <= charts.HEIGHT
    assert chart([None, None]) == ""


def test_a_map_is_darkest_where_the_value_is_largest() -> None:
    svg = charts.heat_map(
        [("a", [0.0, 1.0]), ("b", [0.5, 0.01])], [1.0, 2.0],
        label="l", x_label="x", y_label="y", colour=0,
    )  # fmt: skip
    cells = {
        path.attrib["fill-opacity"]: path.attrib["d"].count("M")
        for path in ElementTree.fromstring(svg).iter("path")
        if "fill-opacity" in path.attrib
    }
    assert cells == {"0.50": 1, "1.00": 1}, "nothing is drawn for next to nothing"
