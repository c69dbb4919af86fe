"""What callbacks have in common: dials that are given or made, and their settings as data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from ..dials import Dials
from ..schedules import as_data, from_data

MakeDials = Callable[[nn.Module, int], Dials]
"""Makes dials for a model and the number of optimizer steps in the whole run."""

_NAMES = ("tau", "beta", "alpha")


def check(dials: object) -> None:
    if not isinstance(dials, Dials) and not callable(dials):
        raise TypeError(
            f"dials is a {type(dials).__name__}; pass dcgraph.Dials, or a function that makes them "
            "of the model and the number of optimizer steps."
        )


def settings_of(dials: Dials) -> dict[str, Any] | None:
    """Schedules and ``every`` as data; None if a schedule is a function of somebody's own."""
    found: dict[str, Any] = {"every": dials.every}
    for name in _NAMES:
        setting = dials._schedules[name]
        each = [as_data(one) for one in (setting if isinstance(setting, tuple) else (setting,))]
        if None in each:
            return None
        found[name] = each if isinstance(setting, tuple) else each[0]
    return found


def with_settings(settings: Mapping[str, Any]) -> Dials:
    """Dials as :func:`settings_of` wrote them down."""
    try:
        made = {}
        for name in _NAMES:
            data = settings[name]
            several = isinstance(data[0], list)
            made[name] = [from_data(one) for one in data] if several else from_data(data)
        return Dials(every=settings["every"], **made)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"the checkpoint has no settings of dials: {error}") from None


def made_for(
    dials: Dials | MakeDials, model: nn.Module, steps: int, saved: Mapping[str, Any] | None
) -> Dials:
    """The dials to train with: as in the run before, if there was one; else as given, or made.

    What a function makes may depend on the weights, which are no longer those of the beginning.
    """
    if isinstance(dials, Dials):
        if saved is not None and settings_of(dials) not in (None, saved):
            warnings.warn(
                f"the checkpoint was trained with {with_settings(saved)}, and goes on with other "
                f"settings: {dials}. Pass dials with the same ones, or ignore this.",
                stacklevel=3,
            )
        return dials
    return with_settings(saved) if saved is not None else _made(dials, model, steps)


def _made(make: MakeDials, model: nn.Module, steps: int) -> Dials:
    if steps < 1:
        raise ValueError(
            f"the trainer counts {steps} optimizer steps, but dials made for the length of a run "
            "need to know it; set the trainer's largest number of steps or epochs."
        )
    with torch.random.fork_rng(devices=[]):  # what it draws changes nothing
        dials = make(model, steps)
    if not isinstance(dials, Dials):
        raise TypeError(f"the function made a {type(dials).__name__}; let it return dcgraph.Dials.")
    return dials


def resume(dials: Dials, state: dict[str, Any] | None) -> None:
    """Go on where the checkpoint was written."""
    if state is not None:
        dials.load_state_dict(state)
    elif dials.state_dict()["calls"] == 0:
        raise ValueError(
            "the checkpoint was saved without dials; pass dials that are where they were then, by "
            "dials.seek(step)."
        )


def values_to_log(dials: Dials) -> dict[str, float]:
    """By the names of their curves; a curve for each replica of a population."""
    shown: dict[str, float] = {}
    for name, value in dials.values().items():
        if isinstance(value, list):
            shown |= {f"dials/{name}/{replica}": one for replica, one in enumerate(value)}
        else:
            shown[f"dials/{name}"] = value
    return shown
