"""What a model read, as text and drawn on a page."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dcgraph.experiments.tasks.listops.commands import Commands
from dcgraph.experiments.tasks.listops.data.expressions import (
    CLOSE,
    parse,
    text_of,
    tree_of,
)
from dcgraph.experiments.tasks.listops.decoding import TreeDecoder
from dcgraph.experiments.tasks.listops.model.latent_tree import LatentTree
from dcgraph.experiments.tasks.listops.reading import Reading, drawing, heights, read, write_page
from listops_models import (
    EXPRESSION,
    TASK,
    python_parents,
    python_value,
    some_expressions,
)
from pages import Page, in_browser, measured_in_browser


def reading_of(text: str, parents: list[int], values: list[int]) -> Reading:
    return Reading(parse(text), tree_of(parse(text)), parents, [values])


def test_a_right_tree_as_text() -> None:
    truth = tree_of(parse(EXPRESSION))
    assert reading_of(EXPRESSION, truth.parents, truth.values).text() == (
        "[MAX 2 9 [MIN 4 7 ] 0 ] = 9  (right)\n"
        "MAX = 9\n"
        "├─ 2\n"
        "├─ 9\n"
        "├─ MIN = 4\n"
        "│  ├─ 4\n"
        "│  └─ 7\n"
        "└─ 0"
    )


def test_a_wrong_tree_as_text() -> None:
    parents = [-1, 0, 0, 0, 3, 0, 0, 6, 0]
    values = [7, 2, 9, 5, 4, 7, 3, 1, 0]
    assert reading_of(EXPRESSION, parents, values).text() == (
        "[MAX 2 9 [MIN 4 7 ] 0 ] = 7  (wrong, it is 9)\n"
        "MAX = 7   <- it is 9\n"
        "├─ 2\n"
        "├─ 9\n"
        "├─ MIN = 5   <- it is 4\n"
        "│  └─ 4\n"
        "├─ 7   <- belongs to MIN, token 4\n"
        "└─ ]\n"
        "   └─ 0 = 1   <- it is 0; belongs to MAX, token 1"
    )


def test_loops_as_text() -> None:
    """4 and 9 are below each other, MIN below 4, 7 below itself; brackets hang on brackets."""
    parents = [-1, 8, 4, 4, 2, 5, 6, 0, 6]
    truth = tree_of(parse(EXPRESSION))
    reading = reading_of(EXPRESSION, parents, [max(v, 0) for v in truth.values])
    assert reading.text().splitlines()[1:] == [
        "MAX = 9",
        "└─ 0",
        "]",
        "└─ ]",
        "   └─ 2   <- belongs to MAX, token 1",
        "9   <- belongs to MAX, token 1",
        "└─ 4   <- belongs to MIN, token 4",
        "   └─ MIN = 4   <- belongs to MAX, token 1",
        "7   <- belongs to MIN, token 4",
    ]


def test_what_hangs_on_a_bracket_that_sends_nothing_as_text() -> None:
    """And 9, which hangs on itself, has one line below it."""
    truth = tree_of(parse(EXPRESSION))
    parents = [-1, 2, 2, 0, 3, 3, -1, 6, -1]
    reading = reading_of(EXPRESSION, parents, [max(v, 0) for v in truth.values])
    assert reading.text().splitlines()[1:] == [
        "MAX = 9",
        "└─ MIN = 4",
        "   ├─ 4",
        "   └─ 7",
        "9   <- belongs to MAX, token 1",
        "└─ 2   <- belongs to MAX, token 1",
        "]",
        "└─ 0   <- belongs to MAX, token 1",
    ]
    assert drawing(reading).count('class="missed"') == 3


@pytest.mark.parametrize("name", ["able", "random"])
def test_every_token_is_shown_once_and_marked_rightly(name: str, models: dict[str, Path]) -> None:
    model, _ = Commands(TASK).load(models[name])
    assert isinstance(model, LatentTree)
    for reading in read(TreeDecoder(model), some_expressions(10), 5):
        shown = [node.position for node in reading.outline()]
        assert len(set(shown)) == len(shown)
        hidden = set(range(len(reading.expression))) - set(shown)
        assert all(reading.expression[k] == CLOSE for k in hidden)
        lines = reading.text().splitlines()[1:]
        assert len(lines) == len(shown)
        text, parents = text_of(reading.expression), python_parents(text_of(reading.expression))
        assert (f"= {python_value(text)}  (right)" in reading.text()) == reading.right
        for line, k in zip(lines, shown, strict=True):
            wrong = reading.parents[k] != parents[k] and reading.expression[k] != CLOSE
            assert ("belongs to" in line) == wrong


@pytest.fixture(scope="module")
def page(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Right and wrong trees, short and long; and a model with a name that would like to run."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    readings = []
    for name in ("able", "random"):
        model, _ = Commands(TASK).load(models[name])
        assert isinstance(model, LatentTree)
        readings += read(TreeDecoder(model), some_expressions(1), 4)
    write_page(path, readings, "<script>alert(1)</script>")
    return path


def test_the_page_is_whole_and_needs_nothing(page: Path) -> None:
    read_page = Page(page.read_text())
    assert len(read_page.all("section")) == len(read_page.all("svg")) == 8
    assert not read_page.all("script") and "<script>" not in page.read_text()
    assert "<script>alert(1)</script>" in read_page.text, "escaped, not lost"
    for _, attributes in read_page.elements:
        for name in ("src", "href", "srcset", "action"):
            assert (attributes.get(name) or "data:").startswith("data:")
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"@import|url\(|https?:", page.read_text())
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in read_page.all("svg"))
    for expression in some_expressions(1):
        assert text_of(expression) in read_page.text


def test_the_drawing_shows_the_tree_and_every_round() -> None:
    parents = [-1, 0, 0, 0, 3, 0, 0, 0, 0]
    values = [[8, 2, 9, 4, 4, 7, 1, 0, 1], [7, 2, 9, 5, 4, 7, 1, 0, 1]]
    reading = Reading(parse(EXPRESSION), tree_of(parse(EXPRESSION)), parents, values)
    svg = ElementTree.fromstring(drawing(reading))
    paths = [path.attrib["class"] for path in svg.iter("path")]
    assert (paths.count("edge"), paths.count("edge wrong"), paths.count("missed")) == (5, 1, 1)
    nodes = [node.attrib["class"] for node in svg.iter("g")]
    assert (nodes.count("node"), nodes.count("node wrong")) == (4, 3), "MAX, MIN, and 7"
    words = [(text.attrib["class"], text.text) for text in svg.iter("text")]
    assert [text for kind, text in words if kind == "row"] == ["tokens", "round 1", "round 2"]
    assert ("early", "8") in words, "MAX needs two rounds, so an 8 is not an error in the first"
    for wrong in ("7", "5"):  # of MAX and MIN, in the tree and in a round; not the 7 below MAX
        assert words.count(("value wrong", wrong)) == 2
    assert heights(reading) == [2, 0, 0, 1, 0, 0, 0, 0, 0]
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    for text in svg.iter("text"):
        assert 0 < float(text.attrib["x"]) < width and 0 < float(text.attrib["y"]) < height


@in_browser
@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1200, "dark")])
def test_the_page_fits_phones_and_screens(
    page: Path, tmp_path: Path, width: int, scheme: str
) -> None:
    measured, console = measured_in_browser(page, tmp_path, width, scheme)
    assert measured["overflow"] <= 0, "no scrolling sideways"
    assert (measured["paper"] == "rgb(255, 255, 255)") == (scheme == "light")
    assert not console
