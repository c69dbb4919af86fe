"""Schedules: pure functions of the step t, stepped by :class:`dcgraph.Dials`.

A schedule is any function from the step to a number; the ones of the paper are here by name.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

Schedule = Callable[[int], float]
"""A function from the step t = 0, 1, 2, ... to the value of a dial."""


def constant(value: float) -> Schedule:
    """The same value at every step.

    >>> constant(8.0)(1000)
    8.0
    """
    return lambda t: value


def temp_match(tau: float, gamma: float) -> Schedule:
    r"""TempMatch: the noise scale grows towards the temperature, :math:`\tau(1 - e^{-\gamma t})`.

    The step where half of tau is reached is log(2) / gamma.

    >>> beta = temp_match(8.0, gamma=0.008)
    >>> [round(beta(t), 2) for t in (0, 87, 240, 1000)]
    [0.0, 4.01, 6.83, 8.0]
    """
    _check("tau", tau, tau > 0, "a temperature is > 0.")
    _check("gamma", gamma, gamma > 0, "the rate of growth is > 0; for no growth use constant().")
    return lambda t: -tau * math.expm1(-gamma * t)


def linear(step: float) -> Schedule:
    r"""Linear growth from 0 to 1, :math:`\min(1, \mathrm{step} \cdot t)`, for alpha of DropRes.

    (The paper prints max for min, a misprint.)

    >>> [linear(0.002)(t) for t in (0, 100, 500, 900)]
    [0.0, 0.2, 1.0, 1.0]
    """
    _check("step", step, step > 0, "the growth per step is > 0; for none use constant().")
    return lambda t: min(1.0, step * t)


def exponential(start: float, gamma: float, floor: float) -> Schedule:
    r"""Exponential decay to a floor, :math:`\max(\mathrm{floor}, \mathrm{start}\, e^{-\gamma t})`.

    The usual annealing of the temperature, which the paper compares with.

    >>> tau = exponential(8.0, gamma=0.008, floor=1.0)
    >>> [round(tau(t), 2) for t in (0, 100, 1000)]
    [8.0, 3.59, 1.0]
    """
    _check("floor", floor, floor > 0, "a temperature stays > 0.")
    _check("start", start, start >= floor, f"decay starts above the floor {floor}.")
    _check("gamma", gamma, gamma > 0, "the rate of decay is > 0; for no decay use constant().")
    return lambda t: max(floor, start * math.exp(-gamma * t))


def piecewise(points: Sequence[tuple[int, float]]) -> Schedule:
    """Straight lines between (step, value) points, constant before the first and after the last.

    Two points at one step make a jump.

    >>> alpha = piecewise([(10, 0.0), (20, 1.0), (30, 1.0), (30, 0.5)])
    >>> [alpha(t) for t in (0, 15, 29, 30, 99)]
    [0.0, 0.5, 1.0, 0.5, 0.5]
    """
    points = list(points)
    steps = [t for t, _ in points]
    _check("points", points, bool(points), "at least one (step, value) point is needed.")
    _check("points", points, steps == sorted(steps), "their steps must not decrease.")

    def value(t: int) -> float:
        after = bisect_right(steps, t)
        if after == 0:
            return points[0][1]
        if after == len(points):
            return points[-1][1]
        (t0, v0), (t1, v1) = points[after - 1], points[after]
        return v0 + (v1 - v0) * (t - t0) / (t1 - t0)

    return value


def _check(argument: str, value: object, fine: bool, remedy: str) -> None:
    if not fine:
        raise ValueError(f"{argument}={value}, but {remedy}")
