"""A function's signature and docstring are its command line."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from dcgraph.experiments.cli.parsing import CommandError, call, visible


def command(  # type: ignore[no-untyped-def]
    place: str,
    way: Literal["on", "back"],
    more: tuple[str, ...] = (),
    /,
    count=3,
    *,
    shade: Literal["red", "blue"] | None = None,
    size: int | None = None,
    rate: float = 0.5,
    depth: Literal[2, 3] = 2,
    words: tuple[str, ...] = (),
    out: Path | None = None,
    loud: bool = False,
    json_: bool = False,
) -> tuple[object, ...]:
    """Go somewhere.

    It takes 100 % of the time.

    Args:
        place: where to.
        size: in whole
            metres.
        rate: 5 % or so.
        json_: in JSON.

    Returns:
        what it got.
    """
    return place, way, more, count, shade, size, rate, depth, words, out, loud, json_


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ([], {}),
        (["a", "b"], {2: ("a", "b")}),
        (["--count", "4"], {3: 4}),
        (["--shade", "red", "--size=5"], {4: "red", 5: 5}),
        (["--rate", "-1"], {6: -1.0}),
        (["--depth", "3"], {7: 3}),
        (["--words", "a", "b", "--words", "c"], {8: ("a", "b", "c")}),
        (["--out", "x/y", "--loud", "--json"], {9: Path("x/y"), 10: True, 11: True}),
        (["a", "--loud", "b"], {2: ("a", "b"), 10: True}),
    ],
)
def test_words_become_arguments(words: list[str], changed: dict[int, object]) -> None:
    said = call(command, "do", ["there", "back", *words])
    plain = ("there", "back", (), 3, None, None, 0.5, 2, (), None, False, False)
    assert said == tuple(changed.get(k, value) for k, value in enumerate(plain))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "the following arguments are required: PLACE, {on,back}; see: do --help"),
        (["there", "up"], "argument {on,back}: invalid choice: 'up' (choose from 'on', 'back')"),
        (["there", "on", "--siez", "3"], "unknown argument '--siez'; did you mean --size? See: do"),
        (["there", "on", "--siez=3"], "unknown argument '--siez=3'; did you mean --size? See: do"),
        (["there", "on", "--size", "x"], "argument --size: invalid int value: 'x'; see: do --help"),
        (["there", "on", "--size"], "argument --size: expected one argument; see: do --help"),
        (["there", "on", "--depth", "4"], "argument --depth: invalid choice: 4"),
        (
            ["there", "on", "--size", "x" * 9999],
            f"argument --size: invalid int value: '{'x' * 99}",
        ),
        (["there", "on", "--" + "x" * 9999], f"unknown argument '--{'x' * 57}...; see: do"),
        (["there", "on", "--lou"], "unknown argument '--lou'; did you mean --loud?"),
    ],
)
def test_mistakes_are_one_line_with_the_remedy(words: list[str], line: str) -> None:
    with pytest.raises(CommandError) as caught:
        call(command, "do", words)
    assert len(str(caught.value)) < 400
    assert str(caught.value).startswith(line) and "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_help_says_what_the_function_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stop:
        call(command, "do", ["--help"], {"here": "where you are", "elsewhere": "all else"})
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: do PLACE {on,back} [MORE ...] [options]\n\nGo somewhere.\n")
    for words in (
        "It takes 100 % of the time.\n",
        "PLACE is one of\n  here       where you are\n  elsewhere  all else\n",
        "  PLACE ",
        "  {on,back}",
        "--shade {red,blue}",
        "--size N ",
        "in whole metres\n",
        "--rate X ",
        "5 % or so (default: 0.5)\n",
        "--out PATH",
        "--words TEXT [TEXT ...]",
        "--json ",
    ):
        assert words in shown, words
    assert "got" not in shown and "None" not in shown and "--no-loud" not in shown


def test_words_after_the_first_can_be_passed_on() -> None:
    def first(name: str, /, *words: str) -> tuple[str, ...]:
        return name, *words

    assert call(first, "do", ["it", "--help", "--x"]) == ("it", "--help", "--x")
    with pytest.raises(CommandError, match="required: NAME"):
        call(first, "do", [])


def test_an_option_can_be_required(capsys: pytest.CaptureFixture[str]) -> None:
    def go(*, model: Path) -> Path:
        """Go.

        Args:
            model: a file.
        """
        return model

    assert call(go, "do", ["--model", "x"]) == Path("x")
    with pytest.raises(CommandError, match="required: --model; see: do --help"):
        call(go, "do", [])
    with pytest.raises(SystemExit):
        call(go, "do", ["--help"])
    assert "a file (required)" in capsys.readouterr().out


def test_a_positional_argument_can_have_a_default() -> None:
    def go(name: str = "all", /) -> str:
        return name

    assert call(go, "do", []) == "all" and call(go, "do", ["one"]) == "one"


def test_a_name_cannot_command_the_terminal() -> None:
    hostile = "\x1b]0;title\x07 \x9b2J \x08 a\u202eb \r over"
    assert visible(hostile) == r"\x1b]0;title\x07 \x9b2J \x08 a\u202eb \r over"
    assert visible("Zürich\t→\n 東京") == "Zürich\t→\n 東京"
