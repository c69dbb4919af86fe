"""Schedules: their values, their ends, and that they can be read and pickled."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable

import pytest

import dcgraph as dc
from dcgraph.schedules import as_data, from_data


def test_schedules_are_the_papers() -> None:
    for t in (0, 1, 7, 240, 5000):
        assert dc.temp_match(8.0, 0.008)(t) == pytest.approx(8.0 * (1 - math.exp(-0.008 * t)))
        assert dc.linear(0, 1, 500)(t) == min(1.0, t / 500)
        assert dc.linear(8.0, 2.0, 240)(t) == pytest.approx(8.0 - 6.0 * min(1.0, t / 240))
        decay = dc.exponential(8.0, 1.0, math.log(8.0) / 0.008)
        assert decay(t) == pytest.approx(max(1.0, 8.0 * math.exp(-0.008 * t)))
        growth = dc.exponential(0.5, 2.0, 2.5)
        assert growth(t) == pytest.approx(0.5 * 4.0 ** min(1.0, t / 2.5))
        assert dc.constant(3.0)(t) == 3.0
    assert dc.temp_match(8.0, 0.008)(0) == 0.0


def test_piecewise() -> None:
    value = dc.piecewise([(2, 1.0), (4, 3.0), (4, 10.0), (6, 10.0)])
    assert [value(t) for t in range(8)] == [1.0, 1.0, 1.0, 2.0, 10.0, 10.0, 10.0, 10.0]


SCHEDULES = [
    "constant(3.0)",
    "linear(0, 1, 500)",
    "exponential(8.0, 1.0, 2.5)",
    "temp_match(8.0, 0.008)",
    "piecewise([(0, 1.0), (5, 0.5)])",
]


@pytest.mark.parametrize("call", SCHEDULES)
def test_schedules_print_as_their_call_and_can_be_pickled(call: str) -> None:
    schedule = eval(call, vars(dc.schedules))
    assert repr(schedule) == call
    copied = pickle.loads(pickle.dumps(schedule))
    assert copied == schedule and [copied(t) for t in range(9)] == [schedule(t) for t in range(9)]


def test_the_ends_of_a_schedule_are_exact() -> None:
    for schedule in (dc.linear(0.1, 0.3, 7), dc.exponential(0.1, 0.3, 7)):
        assert schedule(0) == 0.1 and schedule(7) == schedule(100) == 0.3
    assert dc.exponential(0.3, 0.7, 7)(7) == 0.7, "0.3 times (0.7 / 0.3) is more than that"


def test_schedules_as_data_for_files() -> None:
    for schedule in (
        dc.constant(2.0),
        dc.linear(0, 1, 5),
        dc.exponential(8, 1, 5),
        dc.temp_match(8.0, 0.1),
        dc.piecewise([(0, 1), (3, 2.5)]),
    ):
        data = json.loads(json.dumps(as_data(schedule)))
        assert from_data(data) == schedule
    assert as_data(lambda t: 0.5) is None
    with pytest.raises(ValueError, match=r"no schedule 'eval'; there are constant, .*temp_match"):
        from_data(["eval", "1"])
    with pytest.raises(ValueError, match="gamma=-1"):
        from_data(["temp_match", 8.0, -1])


def test_piecewise_prints_its_points_also_where_a_dataclass_would_not() -> None:
    assert repr(dc.piecewise([(0, 1), (5, 0.5)])) == "piecewise([(0, 1), (5, 0.5)])"
    assert str([dc.linear(0, 1, 5)]) == "[linear(0, 1, 5)]"


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: dc.exponential(0, 1, 5), "start=0, but a factor leads nowhere from 0"),
        (lambda: dc.exponential(1, 0, 5), "end=0, but a factor leads nowhere from 0"),
        (lambda: dc.linear(0, 1, 0), "steps=0, but it takes some steps"),
        (lambda: dc.linear(0, 1, math.inf), "steps=inf, but it takes some steps"),
        (lambda: dc.temp_match(0, 1), "tau=0, but a temperature is > 0."),
        (lambda: dc.temp_match(1, 0), "gamma=0, but the rate of growth is > 0"),
        (lambda: dc.piecewise([]), r"points=\[\], but at least one \(step, value\) point"),
        (lambda: dc.piecewise([(2, 1), (1, 1)]), r"points=\[\(2, 1\), \(1, 1\)\], but their steps"),
    ],
)
def test_what_leads_nowhere_names_the_argument(make: Callable[[], object], line: str) -> None:
    with pytest.raises(ValueError, match=f"^{line}"):
        make()
