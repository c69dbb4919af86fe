"""Dials: the settings tau, beta and alpha of all nodes of a model, moved by schedules."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ._checks import check_dial
from ._dialled import Dialled, dialled
from .schedules import Schedule, constant


class Dials:
    r"""Sets tau, beta and alpha of every node in a model, and moves them while it trains.

    Each of the three is a number or a schedule, a function of t = number of moves so far. The
    paper's method is ``Dials(tau=tau, beta=temp_match(tau, gamma), alpha=linear(step))``: at first
    beta = alpha = 0, a continuous and deterministic network; at last beta = tau and alpha = 1,
    nothing but discrete nodes.

    Args:
        tau: temperature of the nodes.
        beta: scale of their noise.
        alpha: share of dropped residuals.
        every: how many calls of :meth:`step` make one move.

    >>> import dcgraph as dc
    >>> node = dc.Discrete(4, 3)
    >>> dials = dc.Dials(tau=8.0, beta=dc.temp_match(8.0, 0.5), alpha=dc.linear(0.1), every=2)
    >>> dials = dials.attach(node)
    >>> for _ in range(6):
    ...     dials.step()
    >>> dials
    Dials(tau=8, beta=6.21496, alpha=0.3, every=2)  # 3 moves, 1 model
    >>> node.alpha
    tensor(0.3000)
    """

    def __init__(
        self,
        *,
        tau: float | Schedule = 1.0,
        beta: float | Schedule = 1.0,
        alpha: float | Schedule = 1.0,
        every: int = 1,
    ) -> None:
        if not isinstance(every, int) or every < 1:
            raise ValueError(f"every={every}, but the dials move once in a whole number of calls.")
        self.every = every
        self._schedules: dict[str, Schedule] = {
            name: setting if callable(setting) else constant(setting)
            for name, setting in (("tau", tau), ("beta", beta), ("alpha", alpha))
        }
        self._models: list[nn.Module] = []
        self._calls = 0
        self.values()

    @property
    def moves(self) -> int:
        """t, the number of moves so far."""
        return self._calls // self.every

    def values(self) -> dict[str, float]:
        """The current tau, beta and alpha."""
        current = {name: float(value(self.moves)) for name, value in self._schedules.items()}
        for name, value in current.items():
            try:
                check_dial(name, value)
            except ValueError as error:
                raise ValueError(f"the schedule at t={self.moves} gives {error}") from None
        return current

    def at(self, step: int) -> dict[str, float]:
        return {name: float(v(step // self.every)) for name, v in self._schedules.items()}

    def attach(self, model: nn.Module) -> Dials:
        """Set the dials of all nodes in ``model``, now and at every move; returns the dials.

        A model that was copied or loaded afresh is another model: attach it as well. A part of a
        model can have dials of its own, but each node only one: the last to move wins.
        """
        if not dialled(model):
            raise ValueError(
                f"{type(model).__name__} has no discrete nodes; put a dcgraph.Discrete or "
                "dcgraph.Categorical into it before attaching the dials."
            )
        if not any(model is attached for attached in self._models):
            self._models.append(model)
        self._write()
        return self

    def step(self) -> None:
        """Count one training step; move the dials once in ``every`` calls."""
        self._calls += 1
        if self._calls % self.every == 0:
            self._write()

    @torch.no_grad()
    def _write(self) -> None:
        values = self.values()
        for model in self._models:
            for node in dialled(model):
                _set(node, values)

    def state_dict(self) -> dict[str, Any]:
        """How far the schedules are; the schedules themselves are code, not state."""
        return {"calls": self._calls, "every": self.every}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        if set(state) != {"calls", "every"} or not isinstance(state["calls"], int):
            raise ValueError(f"this is not a state of Dials: it has the keys {sorted(state)}.")
        if state["every"] != self.every:
            raise ValueError(
                f"the state was saved with every={state['every']}, but these dials have "
                f"every={self.every}; build them with the saved one."
            )
        self._calls = state["calls"]
        self._write()

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value:g}" for name, value in self.values().items())
        models = f"{len(self._models)} model" + ("" if len(self._models) == 1 else "s")
        return f"Dials({values}, every={self.every})  # {self.moves} moves, {models}"


def _set(node: Dialled, values: dict[str, float]) -> None:
    # In place, so that a compiled or captured step sees the new value.
    for name in node.dial_names:
        node.get_buffer(name).fill_(values[name])
