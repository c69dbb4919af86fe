"""Schedules: pure functions of the step t, stepped by :class:`dcgraph.Dials`.

A schedule is any function from the step to a number; the usual ones are here by name. They can be
pickled, compared and printed, and they need no torch.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, ClassVar

from ._arguments import check_number

__all__ = ["Schedule", "constant", "exponential", "linear", "piecewise", "temp_match"]

Schedule = Callable[[int], float]
"""A function from the step t = 0, 1, 2, ... to the value of a dial."""

Number = int | float
"""``linear(0, 1, 500)`` shall pass the run-time checks of the tests, which take float literally."""


def constant(value: Number) -> Schedule:
    """The same value at every step.

    >>> constant(8.0)(1000)
    8.0
    """
    check_number("value", value, "pass a number.")
    return _Constant(value)


def linear(start: Number, end: Number, steps: Number) -> Schedule:
    r"""A straight line, then constant: :math:`s + (e - s) \min(1, t / n)`.

    For alpha of DropRes it goes from 0 to 1. (The paper prints max for min, a misprint.)

    Args:
        start: s, the value at t = 0.
        end: e, the value from t = n on.
        steps: n > 0, how many schedule steps it takes.

    >>> alpha = linear(0, 1, 500)
    >>> alpha, [alpha(t) for t in (0, 100, 500, 900)]
    (linear(0, 1, 500), [0.0, 0.2, 1.0, 1.0])
    """
    _check_steps(steps)
    return _Linear(start, end, steps)


def exponential(start: Number, end: Number, steps: Number) -> Schedule:
    r"""The same factor in every step, then constant: :math:`s (e / s)^{\min(1, t / n)}`.

    From a large tau to a small one it is the usual annealing of the temperature, with which the
    paper compares.

    Args:
        start: s > 0, the value at t = 0.
        end: e > 0, the value from t = n on.
        steps: n > 0, how many schedule steps it takes.

    >>> tau = exponential(8, 1, 300)
    >>> tau, [round(tau(t), 2) for t in (0, 100, 200, 300, 1000)]
    (exponential(8, 1, 300), [8.0, 4.0, 2.0, 1.0, 1.0])
    """
    for argument, value in (("start", start), ("end", end)):
        _check(argument, value, value > 0, "a factor leads nowhere from 0; use linear().")
    _check_steps(steps)
    return _Exponential(start, end, steps)


def temp_match(tau: Number, gamma: Number) -> Schedule:
    r"""TempMatch: the noise scale grows towards the temperature, :math:`\tau(1 - e^{-\gamma t})`.

    The step where half of tau is reached is log(2) / gamma.

    >>> beta = temp_match(8.0, gamma=0.008)
    >>> [round(beta(t), 2) for t in (0, 87, 240, 1000)]
    [0.0, 4.01, 6.83, 8.0]
    """
    _check("tau", tau, tau > 0, "a temperature is > 0.")
    _check("gamma", gamma, gamma > 0, "the rate of growth is > 0; for no growth use constant().")
    return _TempMatch(tau, gamma)


def piecewise(points: Sequence[tuple[int, Number]]) -> Schedule:
    """Straight lines between (step, value) points, constant before the first and after the last.

    Two points at one step make a jump.

    >>> alpha = piecewise([(10, 0.0), (20, 1.0), (30, 1.0), (30, 0.5)])
    >>> [alpha(t) for t in (0, 15, 29, 30, 99)]
    [0.0, 0.5, 1.0, 0.5, 0.5]
    """
    points = [(t, value) for t, value in points]
    steps = [t for t, _ in points]
    _check("points", points, bool(points), "at least one (step, value) point is needed.")
    _check("points", points, steps == sorted(steps), "their steps must not decrease.")
    return _Piecewise(tuple(points))


def is_constant(schedule: Schedule) -> bool:
    """Whether it is known to be the same at every step."""
    return isinstance(schedule, _Constant)


def as_data(schedule: Schedule) -> list[Any] | None:
    """Name and arguments, for a file; None for a function of somebody's own.

    >>> as_data(temp_match(8.0, 0.1))
    ['temp_match', 8.0, 0.1]
    """
    return [schedule.name, *astuple(schedule)] if isinstance(schedule, _Called) else None


def from_data(data: Sequence[Any]) -> Schedule:
    """The schedule that :func:`as_data` has written down; a file may hold anything.

    >>> from_data(["temp_match", 8.0, 0.1])
    temp_match(8.0, 0.1)
    """
    makers: dict[Any, Callable[..., Schedule]] = {
        make.__name__: make for make in (constant, linear, exponential, temp_match, piecewise)
    }
    name, *arguments = data
    if not isinstance(name, str) or name not in makers:
        raise ValueError(f"there is no schedule {name!r}; there are {', '.join(makers)}.")
    points = [[tuple(one) for one in given] for given in arguments if isinstance(given, list)]
    return makers[name](*(points or arguments))


@dataclass(frozen=True, repr=False)
class _Called:
    """Prints as the call that made it."""

    name: ClassVar[str]

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, astuple(self)))})"


@dataclass(frozen=True, repr=False)
class _Constant(_Called):
    name = "constant"
    value: Number

    def __call__(self, t: int) -> float:
        return float(self.value)


@dataclass(frozen=True, repr=False)
class _Linear(_Called):
    name = "linear"
    start: Number
    end: Number
    steps: Number

    def __call__(self, t: int) -> float:
        if t >= self.steps:
            return float(self.end)
        return self.start + (self.end - self.start) * (t / self.steps)


@dataclass(frozen=True, repr=False)
class _Exponential(_Called):
    name = "exponential"
    start: Number
    end: Number
    steps: Number

    def __call__(self, t: int) -> float:
        if t >= self.steps:
            return float(self.end)
        factor: float = (self.end / self.start) ** (t / self.steps)
        return self.start * factor


@dataclass(frozen=True, repr=False)
class _TempMatch(_Called):
    name = "temp_match"
    tau: Number
    gamma: Number

    def __call__(self, t: int) -> float:
        return -self.tau * math.expm1(-self.gamma * t)


@dataclass(frozen=True, repr=False)
class _Piecewise(_Called):
    name = "piecewise"
    points: tuple[tuple[int, Number], ...]

    def __call__(self, t: int) -> float:
        after = bisect_right(self.points, t, key=lambda point: point[0])
        if after == 0:
            return float(self.points[0][1])
        if after == len(self.points):
            return float(self.points[-1][1])
        (t0, v0), (t1, v1) = self.points[after - 1], self.points[after]
        return v0 + (v1 - v0) * (t - t0) / (t1 - t0)

    def __repr__(self) -> str:
        return f"piecewise({list(self.points)})"


def _check_steps(steps: Number) -> None:
    _check("steps", steps, 0 < steps < math.inf, "it takes some steps; for none use constant().")


def _check(argument: str, value: object, fine: bool, remedy: str) -> None:
    if not fine:
        raise ValueError(f"{argument}={value}, but {remedy}")
