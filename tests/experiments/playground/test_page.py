"""The page in a browser: every panel by mouse, finger and keyboard, wide and narrow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from chromium import Browser, Tab
from pages import in_browser

pytestmark = in_browser

FIRST, SECOND = "#digits .place.c0", "#digits .place.c1"


@pytest.fixture(params=[400, 1200], ids=["phone", "desk"])
def screen(request: pytest.FixtureRequest, browser: Browser, page: Path) -> Iterator[Tab]:
    """The page on a phone in the dark with less motion, and on a desk; nothing may go wrong."""
    phone = request.param == 400
    tab = browser.open(page, request.param, phone=phone, dark=phone, calm=phone)
    yield tab
    assert tab.said() == [], "the console stays empty"
    assert tab.requests() == [page.as_uri()]
    assert tab.overflow() == 0
    tab.close()


def sliders(panel: str, number: int) -> str:
    return f"#{panel} .slider:nth-of-type({number}) input"


def is_phone(tab: Tab) -> bool:
    return bool(tab.evaluate("innerWidth < 500"))


def test_everything_is_as_wide_as_the_window(screen: Tab) -> None:
    assert screen.overflow() == 0
    beyond = screen.evaluate(
        """[...document.querySelectorAll("main *:not(.wide *)")].filter((each) =>
            each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.outerHTML)"""
    )
    assert beyond == []
    dark = (
        screen.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    )
    assert dark == is_phone(screen)


def test_what_can_be_pressed_has_a_name_and_is_large_enough(screen: Tab) -> None:
    unnamed = screen.evaluate(
        """[...document.querySelectorAll("button, input, select, canvas, svg, a")].filter((each) =>
            !(each.textContent.trim() && each.tagName !== "svg" || each.labels?.length
                || each.getAttribute("aria-label"))).map((each) => each.outerHTML)"""
    )
    assert unnamed == []
    small = screen.evaluate(
        """[...document.querySelectorAll("button, input, select, nav a")].filter((each) =>
            each.getBoundingClientRect().height < 23).map((each) => each.outerHTML)"""
    )
    assert small == []


def test_noise_and_temperature(screen: Tab) -> None:
    shares = "#noise .numbers"
    before = screen.text(shares)
    for number in range(1, 6):  # every slider, by keyboard
        screen.click(sliders("noise", number))
        screen.focus(sliders("noise", number))
        screen.press("ArrowRight", 2)
        assert screen.text(shares) != before
        before = screen.text(shares)
    share = screen.text("#noise .share")
    click_button(screen, "noise", "Draw again")
    assert screen.text("#noise .share") != share
    strip = "document.querySelector('#noise .strip').ariaLabel"
    ringed = screen.evaluate(strip)
    click_button(screen, "noise", "Ring another sample")
    assert screen.evaluate(strip) != ringed
    drawn, expected = (
        [float(share) for share in re.findall(rf"([\d.]+) % {word}", screen.text(shares))]
        for word in ("drawn", "expected")
    )
    assert len(drawn) == 3 and abs(sum(drawn) - 100) < 0.2 and abs(sum(expected) - 100) < 0.2
    assert all(abs(a - b) < 4 for a, b in zip(drawn, expected, strict=True))


def test_without_noise_all_samples_are_one(screen: Tab) -> None:
    to_the_end(screen, sliders("noise", 2), left=True)
    assert "100.0 % drawn, 100.0 % expected" in screen.text("#noise .numbers")
    assert screen.text("#noise .numbers").count("0.0 % drawn, 0.0 % expected") == 2


def test_the_chain_dies_and_dropres_keeps_it_alive(screen: Tab) -> None:
    said = "#chain .said"
    assert "1/6,400,000 of" in screen.text(said)
    to_the_end(screen, sliders("chain", 1))
    assert "1/10" in screen.text(said), "twenty nodes: too small for a plain fraction"
    assert screen.evaluate("document.querySelectorAll('#chain circle.node').length") == 20
    assert screen.evaluate("document.querySelector('#chain .switch ~ .slider input').disabled")
    screen.click("#dropres")
    alive = re.search(r"gets 1/([\d,]+) of|gets [\d.]+ (times|%)", screen.text(said))
    assert alive and float((alive[1] or "1").replace(",", "")) < 1e4
    assert screen.text("#chain svg text.without") == "without DropRes"
    to_the_end(screen, "#chain .switch ~ .slider input")
    assert "1/10" in screen.text(said), "all residuals are dropped"
    click_button(screen, "chain", "Draw new noise")
    screen.click("#dropres")
    assert screen.evaluate("document.querySelector('#chain svg text.without')") is None


def test_a_training_schedule_is_played(screen: Tab) -> None:
    click_button(screen, "chain", "Play a training schedule")
    assert screen.evaluate("document.querySelector('#dropres').checked")
    value = "document.querySelector('#chain .switch ~ .slider .value').textContent"
    screen.wait(f"{value} !== '0.00'")
    click_button(screen, "chain", "Stop")
    stopped = screen.evaluate(value)
    assert 0 < float(stopped) < 1
    assert not screen.evaluate(
        "[...document.querySelectorAll('#chain button')].some((b) => b.textContent === 'Stop')"
    )


def test_digits_are_written_by_keys(screen: Tab) -> None:
    for digits in ((7, 9), (0, 8)):
        for place, digit in zip((FIRST, SECOND), digits, strict=True):
            screen.focus(f"{place} canvas")
            screen.press(str(digit))
            assert f"stands for {digit}" in screen.text(f"{place} .symbol-said")
        assert screen.text("#digits .answer") == str(sum(digits))
        assert screen.text("#digits td.lit") == str(sum(digits))
        assert screen.text("#digits th.first") == str(digits[0])
        assert screen.text("#digits th.second") == str(digits[1])
        lit = "document.querySelectorAll('#digits .symbols .first, #digits .symbols .second')"
        assert screen.evaluate(f"{lit}.length") == 2
    screen.press("Delete")
    assert screen.text("#digits .answer") == "?" and "nothing yet" in screen.text(SECOND)
    assert screen.evaluate("document.querySelectorAll('#digits .lit, #digits .along').length") == 0


def test_digits_are_drawn_by_mouse_or_finger(screen: Tab) -> None:
    for place in (FIRST, SECOND):
        screen.click(f"{place} button")  # clear
        x, y = screen.middle(f"{place} canvas")
        draw = screen.touch if is_phone(screen) else screen.drag
        draw([(x + 2 * (k % 2), y - 50 + 10 * k) for k in range(11)])  # a line from the top
        assert "stands for 1" in screen.text(f"{place} .symbol-said")
    assert screen.text("#digits .answer") == "2"
    ink = screen.evaluate(
        f"""(() => {{
            const preview = document.querySelector("{FIRST} .preview");
            const pixels = preview.getContext("2d").getImageData(0, 0, 28, 28).data;
            return pixels.filter((value, k) => k % 4 === 3 && value > 127).length;
        }})()"""
    )
    assert 30 < ink < 90, "the image that the model sees has the line"
    click_button(screen, "digits", "Another")
    assert screen.text("#digits .answer") != "?"


def test_a_formula_is_typed_and_stepped_through(screen: Tab) -> None:
    field = "document.querySelector('#formula-text')"
    screen.evaluate(f"{field}.select(), {field}.focus()")
    screen.type("[max 3 [min 8 5]")
    assert "1 bracket is not closed" in screen.text("#formula .said")
    screen.type("]")
    assert screen.text("#formula .said") == "= 5, right. 4 of 4 edges are right."
    stages = ["the tokens", "edges chosen", *(f"round {k} of 5" for k in range(1, 6))]
    for stage in reversed(stages[:-1]):
        click_button(screen, "formula", "Back")
        assert screen.text("#formula .stage-name") == stage
    count = "document.querySelectorAll('#formula svg .edge').length"
    assert screen.evaluate(count) == 0
    click_button(screen, "formula", "Next")
    assert screen.evaluate(count) == 4, "two arguments of each operator"
    click_button(screen, "formula", "Next")
    assert screen.evaluate("document.querySelectorAll('#formula svg text.row').length") == 2
    screen.focus("#formula .steps input")
    screen.press("ArrowRight", 4)
    assert screen.text("#formula .stage-name") == "round 5 of 5"


def test_what_is_wrong_in_a_formula_is_marked(screen: Tab) -> None:
    click_button(screen, "formula", "One it gets wrong")
    assert "wrong, it is 5" in screen.text("#formula .said")
    assert screen.evaluate("document.querySelectorAll('#formula g.node.wrong').length") == 1
    for label in ("A small one", "A deep one", "A random one"):
        click_button(screen, "formula", label)
        assert "right" in screen.text("#formula .said")
        assert screen.evaluate("document.querySelectorAll('#formula g.node.wrong').length") == 0
    click_button(screen, "formula", "Play")
    click_button(screen, "formula", "Stop")


def test_a_path_is_asked(screen: Tab) -> None:
    first = "#paths .column.answers"
    assert screen.text(f"{first} h3") == "isa →" and "vertebrate" in screen.text(first)
    assert screen.evaluate("document.querySelectorAll('#paths .column').length") == 3
    by_beam = screen.text(first)
    screen.click("#decoder-0")
    by_argmax = screen.text(first)
    assert by_argmax != by_beam
    kept = "document.querySelectorAll('#paths .column:nth-child(2) li').length"
    assert screen.evaluate(kept) == 1
    screen.focus("#decoder-0")
    screen.press("ArrowRight")
    assert screen.evaluate("document.querySelector('#decoder-1').checked")
    assert screen.text(first) == by_beam


def test_a_source_is_typed_and_relations_are_chosen(screen: Tab) -> None:
    field = "document.querySelector('#paths-source')"
    screen.focus("#paths-source")
    screen.evaluate(f"{field}.select()")
    screen.type("amino")
    assert "Go on: amino acid peptide or protein" in screen.text("#paths .said")
    screen.evaluate(f"{field}.select()")
    screen.type("amino acid peptide or protein")
    screen.press("Tab")  # which closes the list
    assert screen.text("#paths .column b") == "amino acid peptide or protein"
    assert screen.evaluate("document.querySelectorAll('#entities option').length") == 135
    screen.click("#paths .remove")
    assert screen.evaluate("document.querySelectorAll('#paths .hop').length") == 1
    assert screen.evaluate("document.querySelector('#paths .remove').disabled")
    for count in range(2, 6):
        click_button(screen, "paths", "Add a relation")
        assert screen.evaluate("document.querySelectorAll('#paths .hop').length") == count
    assert not screen.evaluate(
        "[...document.querySelectorAll('#paths button')].some((b) => b.textContent[0] === 'A' "
        "&& b.textContent.startsWith('Add'))"
    )
    before = screen.text("#paths .walk")
    screen.focus("#paths .hop:last-of-type select")
    screen.press("ArrowDown", 3)
    assert screen.text("#paths .walk") != before
    for _ in range(5):
        click_button(screen, "paths", "A random question")
        assert "candidates" in screen.text("#paths .said")
        assert screen.overflow() == 0
        assert "undefined" not in screen.text("#paths .walk")


def test_known_answers_and_new_ones_are_marked(screen: Tab) -> None:
    rows = screen.evaluate(
        """[...document.querySelectorAll("#paths .answers li")].map((row) =>
            [row.className, row.querySelector(".mark-of").textContent])"""
    )
    assert len(rows) == 8 and {kind for kind, _ in rows} == {"seen", "unseen", "new"}
    for kind, mark in rows:
        assert {"seen": "in training", "unseen": "in ", "new": "new, probability "}[kind] in mark


def test_only_new_answers(screen: Tab) -> None:
    screen.click("#only-new")
    kinds = screen.evaluate(
        "[...document.querySelectorAll('#paths .answers li')].map((row) => row.className)"
    )
    assert kinds and set(kinds) == {"new"}


def test_the_links_lead_to_the_panels(screen: Tab) -> None:
    for name in screen.evaluate("[...document.querySelectorAll('nav a')].map((a) => a.hash)"):
        screen.click(f"nav a[href='{name}']")
        screen.wait(f"location.hash === '{name}'")


def click_button(tab: Tab, panel: str, label: str) -> None:
    tab.evaluate(
        f"""document.querySelectorAll("[data-target]").forEach((b) => delete b.dataset.target),
        [...document.querySelectorAll("#{panel} button")].find((b) =>
            b.textContent === "{label}").dataset.target = "" """
    )
    tab.click("[data-target]")
    # A busy machine handles the click later than it is answered.
    tab.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


def to_the_end(tab: Tab, slider: str, left: bool = False) -> None:
    tab.focus(slider)
    tab.press("ArrowLeft" if left else "ArrowRight", 25)
