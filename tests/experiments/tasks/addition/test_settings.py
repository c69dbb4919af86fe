"""Settings of addition."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from dcgraph.experiments.engine.settings import from_dict
from dcgraph.experiments.tasks.addition.settings import CARRY, DEMO, PAPER, AdditionSettings


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"summands": 17}, "2 to 16"),
        ({"values": 5, "images": "mnist"}, "all 10 digits"),
        ({"model": "cnn", "images": "digits"}, "28x28"),
        ({"augment": -1.0}, "at least 0"),
        ({"values": 11}, "between 2 and 10"),
        ({"symbols": 1}, "at least 2 rows; use 0"),
        ({"symbols": -1}, "at least 2 rows; use 0"),
        ({"modulo": 1}, "at least 2; use 0"),
        ({"sums": "answers"}, "add --symbols"),
        ({"lengths": "all", "model": "cnn"}, "fixed number of images"),
        ({"init_std": 0.0}, "never part"),
        ({"digits": 4}, "too few for ten digits"),
        ({"digits": -1}, "at least 1 digit"),
        ({"digits": 4, "symbols": 16, "summands": 3}, "two numbers"),
        ({"digits": 4, "symbols": 16, "model": "deepproblog"}, "leave out one"),
        ({"examples": 0}, "1 to 160000"),
        ({"examples": 160_001}, "1 to 160000"),
    ],
)
def test_impossible_settings(changes: dict[str, object], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        replace(PAPER, **changes)  # type: ignore[arg-type]


def test_settings_written_before_digits_had_another_meaning() -> None:
    new = asdict(DEMO)
    assert from_dict(AdditionSettings, new) == DEMO
    old = {("digits" if name == "values" else name): new[name] for name in new if name != "digits"}
    assert old["digits"] == 5 and from_dict(AdditionSettings, old) == DEMO
    assert from_dict(AdditionSettings, asdict(CARRY)).digits == 4
