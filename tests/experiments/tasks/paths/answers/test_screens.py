"""Screens in 80 columns, and lines for programs."""

from __future__ import annotations

import json
import math

import pytest

from dcgraph.experiments.cli.parsing import visible
from dcgraph.experiments.tasks.paths.answers.answerer import GUESS, Answer, Answered, Step, Stop
from dcgraph.experiments.tasks.paths.answers.known import NEW
from dcgraph.experiments.tasks.paths.answers.screens import (
    as_json,
    as_lines,
    error_as_json,
    legend,
    per_cent,
    text,
)

LONG = "a_name_that_is_much_longer_than_what_a_line_of_a_terminal_can_have_" * 2

ANSWERED = Answered(
    source="ann",
    path=("knows", "**parent"),
    candidates=1234,
    known={"training": 1, "validation": 0, "test": 2},
    hops=((Stop("bob", "training", 0.75, None), Stop(LONG, NEW, 0.25, 0.3456789)),),
    answers=(
        Answer(
            "cid", "training", 0.6, None,
            (Step("ann", "knows", "bob", "training"), Step("bob", "**parent", "cid", "training")),
        ),
        Answer(
            "dan", "test", 0.3, None,
            (Step("ann", "knows", "bob", "training"), Step("bob", "**parent", "dan", "test")),
        ),
        Answer(
            "eve", NEW, 0.1, 0.999,
            (Step("ann", "knows", LONG, GUESS), Step(LONG, "**parent", "eve", GUESS)),
        ),
    ),
)  # fmt: skip


def test_a_screen() -> None:
    lines = text(ANSWERED, 16, True).splitlines()
    assert lines[:2] == ["ann: knows, **parent", ""]
    assert lines[2:4] == ["On the way, the best 2:", "  knows"]
    assert lines[4].split() == ["bob", "in", "training"]
    assert lines[5].split()[:2] == ["35", "%"] and "..." in lines[5] and lines[5].endswith("new")
    assert lines[7] == "Answers (1,234 candidates; known: 1 in training, 2 in test):"
    assert lines[8].strip() == "right"
    assert lines[9].split() == ["1", "cid", "in", "training"] and lines[10].strip() == "by bob"
    assert lines[11].split() == ["2", "dan", "in", "test"]
    assert lines[12].strip() == "by bob; test: dan parent bob", "from head to tail"
    assert lines[13].split() == ["3", ">99", "%", "eve", "new"]
    assert " ".join(" ".join(lines[14:]).split()).replace("- ", "-").count("guess: ann knows") == 1
    marks = {
        line.index(word) for line in lines[4:14] for word in ("  in t", "  new") if word in line
    }
    assert len(marks) == 1, "marks stand in a column"
    assert max(map(len, lines)) <= 80


def test_without_calibration_shares_are_shown_and_said_to_be_such() -> None:
    lines = text(ANSWERED, 2, False).splitlines()
    assert lines[2] == "On the way:", "all that are kept"
    assert lines[4].split()[:2] == ["75", "%"] and "share" in lines[8]
    assert lines[9].split()[:3] == ["1", "60", "%"]
    assert legend(False).startswith("share: ") and legend(True).startswith("right: ")
    assert all(len(line) <= 80 for which in (True, False) for line in legend(which).splitlines())


def test_a_path_of_one_relation_has_no_way() -> None:
    one = Answered(
        "ann", ("knows",), 1, {"training": 0}, (),
        (Answer("bob", NEW, 1.0, 0.5, (Step("ann", "knows", "bob", GUESS),)),),
    )  # fmt: skip
    assert json.loads(as_json(one, True))["known"] == {"training": 0, "validation": 0, "test": 0}
    lines = text(one, 16, True).splitlines()
    assert lines[2] == "Answers (1 candidate; none known):" and len(lines) == 5


@pytest.mark.parametrize("share", [1.0, 0.99999, 0.0, 1e-9])
def test_nothing_is_certain(share: float) -> None:
    assert per_cent(share) in (">99 %", "<1 %")


NUMBER, TEXT = (int, float), str
STOP = {"entity": TEXT, "mark": TEXT, "share": NUMBER, "probability": (*NUMBER, type(None))}
STEP = {"source": TEXT, "relation": TEXT, "target": TEXT, "mark": TEXT}
SCHEMA = {
    "source": TEXT,
    "path": [TEXT],
    "candidates": int,
    "known": dict,
    "calibrated": bool,
    "hops": [[STOP]],
    "answers": [{"rank": int, **STOP, "evidence": [STEP]}],
}


def check(value: object, schema: object) -> None:
    """That a value has exactly these fields, of these types."""
    if isinstance(schema, dict):
        assert isinstance(value, dict) and list(value) == list(schema)
        for name, kind in schema.items():
            check(value[name], kind)
    elif isinstance(schema, list):
        assert isinstance(value, list)
        for item in value:
            check(item, schema[0])
    else:
        assert isinstance(value, schema)  # type: ignore[arg-type]


def test_json_has_the_fields_that_are_documented() -> None:
    line = as_json(ANSWERED, True)
    assert "\n" not in line
    found = json.loads(line)
    check(found, SCHEMA)
    assert (
        found["answers"][2]["probability"] == 0.999 and found["answers"][0]["probability"] is None
    )
    assert found["hops"][0][1]["probability"] == 0.345679, "six digits"
    with_line = json.loads(as_json(ANSWERED, True, 7))
    check(with_line, {"line": int, **SCHEMA})
    assert json.loads(error_as_json(3, "no")) == {"line": 3, "error": "no"}


def test_json_stays_json_on_a_terminal() -> None:
    """Names may have control characters, which the command line shows in another way."""
    odd = "\x1b[2J\x7f\u202e\x9b\n\té"
    line = error_as_json(1, odd)
    assert visible(line) == line and json.loads(line)["error"] == odd
    with pytest.raises(ValueError):
        as_json(Answered("a", ("r",), 1, {}, ((Stop("b", NEW, math.nan, None),),), ()), True)


def test_lines_with_tabs() -> None:
    assert list(as_lines(ANSWERED, True)) == [
        "ann\tknows,**parent\t1\tcid\ttraining\t",
        "ann\tknows,**parent\t2\tdan\ttest\t",
        "ann\tknows,**parent\t3\teve\tnew\t0.999",
    ]
    assert [line.split("\t")[-1] for line in as_lines(ANSWERED, False)] == ["0.6", "0.3", "0.1"]
