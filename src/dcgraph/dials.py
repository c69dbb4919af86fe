"""Dials: the scheduler of tau, beta and alpha, for all nodes of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._arguments import check_number, check_range
from .schedules import Number, Schedule, constant

if TYPE_CHECKING:
    import torch

__all__ = ["Dials"]


class Dials:
    r"""The scheduler of tau, beta and alpha: sets them in every node of a model while it trains.

    Each of the three is a number or a schedule, a function of t = number of schedule steps so far.
    The paper's method is ``Dials(tau=tau, beta=temp_match(tau, gamma), alpha=linear(0, 1, n))``: at
    first beta = alpha = 0, a continuous and deterministic network; at last beta = tau and
    alpha = 1, only discrete nodes.

    Args:
        tau: temperature of the nodes.
        beta: scale of their noise.
        alpha: share of dropped residuals.
        every: how many training steps (calls of :meth:`step`) make one schedule step.

    >>> import dcgraph as dc
    >>> node = dc.Discrete(4, 3)
    >>> dials = dc.Dials(tau=8.0, beta=dc.temp_match(8.0, 0.5), alpha=dc.linear(0, 1, 10), every=2)
    >>> dials = dials.attach(node)
    >>> for _ in range(6):
    ...     dials.step()
    >>> dials
    Dials(tau=8, beta=6.21496, alpha=0.3, every=2)  # 3 schedule steps, 1 model
    >>> node.alpha
    tensor(0.3000)
    """

    def __init__(
        self,
        *,
        tau: Number | Schedule = 1.0,
        beta: Number | Schedule = 1.0,
        alpha: Number | Schedule = 1.0,
        every: int = 1,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(
                f"every={every}, but a schedule step takes a whole number of training steps; "
                "pass 1 or more."
            )
        self.every = every
        self._schedules: dict[str, Schedule] = {}
        for name, setting in (("tau", tau), ("beta", beta), ("alpha", alpha)):
            if callable(setting):
                self._schedules[name] = setting
            else:
                check_number(name, setting, "pass a number or a schedule.")
                self._schedules[name] = constant(setting)
        self._models: list[torch.nn.Module] = []
        self._calls = 0
        self.values()

    @property
    def schedule_steps(self) -> int:
        """t, the number of schedule steps so far."""
        return self._calls // self.every

    def values(self) -> dict[str, float]:
        """The current tau, beta and alpha."""
        return self.at(self._calls)

    def at(self, step: int) -> dict[str, float]:
        """tau, beta and alpha after that many training steps; changes nothing.

        >>> import dcgraph as dc
        >>> dc.Dials(tau=8.0, beta=0.0, alpha=dc.linear(0, 1, 4), every=100).at(250)
        {'tau': 8.0, 'beta': 0.0, 'alpha': 0.5}
        """
        if step < 0:
            raise ValueError(f"step={step}, but training steps are counted from 0.")
        t = step // self.every
        values = {name: float(schedule(t)) for name, schedule in self._schedules.items()}
        for name, value in values.items():
            try:
                check_range(name, value)
            except ValueError as error:
                raise ValueError(f"the schedule at t={t} gives {error}") from None
        return values

    def attach(self, model: torch.nn.Module) -> Dials:
        """Set tau, beta and alpha in ``model``, now and at every schedule step; returns the dials.

        A model that was copied or loaded afresh is another model: attach it as well. A part of a
        model can have dials of its own, but each node only one: the last to step wins.
        """
        from ._dialled import dialled  # imports torch, without which schedules can be computed

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
        """Count one training step; once in ``every`` calls it is a schedule step."""
        self._calls += 1
        if self._calls % self.every == 0:
            self._write()

    def _write(self) -> None:
        from ._dialled import set_dials  # imports torch, without which schedules can be computed

        values = self.values()
        for model in self._models:
            set_dials(model, values)

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
        steps = f"{self.schedule_steps} schedule step" + ("" if self.schedule_steps == 1 else "s")
        return f"Dials({values}, every={self.every})  # {steps}, {models}"
