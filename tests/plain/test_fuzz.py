"""Damaged input: a value or one line, for every parser and loader. `make fuzz` tries many more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fuzz
from dcgraph.experiments.engine.errors import DataError

CASES = 10_000


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_damaged_input_gives_a_value_or_one_line(name: str) -> None:
    cases = fuzz.cases_of(name, CASES)
    found = fuzz.run(name, cases)
    assert not found.failures, f"{len(found.failures)} of {cases}: {found.failures[0]}"
    assert found.cases == cases


def test_all_targets_together_have_ten_thousand_cases() -> None:
    assert sum(fuzz.cases_of(name, CASES) for name in fuzz.TARGETS) >= CASES


def misbehave(kind: str, folder: Path) -> None:
    match kind:
        case "traceback":
            raise KeyError("x")
        case "two lines":
            raise DataError("one\ntwo")
        case "long line":
            raise DataError("x" * 5000)
        case "hang":
            while True:
                pass
        case "memory":
            bytearray(4 * fuzz.MEMORY)  # what was free before may be had again
        case "outside":
            (folder.parent / "outside").write_text("x")
        case "program":
            os.system("true")
        case _:
            raise DataError("one line")


@pytest.mark.parametrize(
    "kind", ["traceback", "two lines", "long line", "hang", "memory", "outside", "program", ""]
)
def test_the_fuzz_sees_what_must_not_be(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 0.2)
    target = fuzz.Target(lambda home: lambda damage, folder: misbehave(kind, folder), (DataError,))
    monkeypatch.setitem(fuzz.TARGETS, "made up", target)
    found = fuzz.run("made up", 2)
    assert (len(found.failures), found.errors.total()) == ((2, 0) if kind else (0, 2))
