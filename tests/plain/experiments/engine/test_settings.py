"""Settings of wrong types, which the run-time checks of the other tests would catch."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pytest

from dcgraph.experiments.engine.settings import Settings, from_dict
from dcgraph.experiments.tasks.paths.settings import SMALL, PathSettings


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("epochs", 2.5, "epochs=2.5 is a float; a whole number is needed"),
        ("epochs", True, "epochs=True is a bool"),
        ("lr", "0.1", "lr='0.1' is a str; a number is needed"),
        ("lr", math.nan, "lr=nan, but a finite number"),
        ("dropres", 1, "dropres=1 is a int; true or false"),
        ("gate", "x/../../../../ESCAPED", "gate='x/../../../../ESCAPED' is unknown"),
        ("graph", None, "graph=None is a NoneType; text is needed"),
    ],
)
def test_settings_are_checked_wherever_they_come_from(
    name: str, value: object, message: str
) -> None:
    """A run.json says what is trained when a run is resumed."""
    with pytest.raises((TypeError, ValueError), match=message):
        from_dict(PathSettings, {**asdict(SMALL), name: value})


@pytest.mark.parametrize("values", [{"x" * 9999: 1}, {"tau": "x" * 9999}, {"batch": -(10**4000)}])
def test_a_complaint_repeats_only_the_beginning_of_a_long_value(values: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        from_dict(Settings, values)
    assert len(str(caught.value)) < 500
