"""Dials: the scheduler of tau, beta and alpha, for all nodes of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ._arguments import check_number, check_range, shown
from .schedules import Number, Schedule, constant, is_constant, linear, temp_match

if TYPE_CHECKING:
    import torch

    from ._dialled import Clock
    from ._ranks import Position

__all__ = ["Dials"]

Setting = Number | Schedule
"""Of a dial: a number or a schedule."""


class Dials:
    r"""The scheduler of tau, beta and alpha: sets them in every node of a model while it trains.

    Each of the three is a number or a schedule, a function of t = number of schedule steps so far.
    The paper's method is ``Dials(tau=tau, beta=temp_match(tau, gamma), alpha=linear(0, 1, n))``: at
    first beta = alpha = 0, a continuous and deterministic network; at last beta = tau and
    alpha = 1, only discrete nodes. :meth:`recommended` chooses all of it for a model.

    Args:
        tau: temperature of the nodes.
        beta: scale of their noise.
        alpha: share of dropped residuals.
        every: how many training steps (calls of :meth:`step`) make one schedule step.

    Where torch.distributed runs, every rank has dials of its own and steps them. A warning names a
    rank that does not, within 100 training steps or two schedule steps. Dials that are pickled or
    deep-copied take their attached models along, as an optimizer of torch takes its parameters.
    For a checkpoint there is :meth:`state_dict`.

    For a :class:`dcgraph.Population` each of the three may also be a list, with a number or a
    schedule for every replica: ``tau=[1, 2, 4, 8]``.

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
        tau: Setting | Sequence[Setting] = 1.0,
        beta: Setting | Sequence[Setting] = 1.0,
        alpha: Setting | Sequence[Setting] = 1.0,
        every: int = 1,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(
                f"every={every}, but a schedule step takes a whole number of training steps; "
                "pass 1 or more."
            )
        self.every = every
        settings = {"tau": tau, "beta": beta, "alpha": alpha}
        self._schedules = {name: _schedules(name, one) for name, one in settings.items()}
        self._models: list[tuple[torch.nn.Module, int | None]] = []
        self._calls = 0
        self._own_clock: Clock | None = None
        self._position: Position | None = None
        self.values()

    @classmethod
    def constant(
        cls,
        model: torch.nn.Module,
        *,
        tau: Number | Sequence[Number] = 1.0,
        beta: Number | Sequence[Number] = 1.0,
        alpha: Number | Sequence[Number] = 1.0,
    ) -> Dials:
        """Set the dials of a model to numbers that stay; nothing has to be stepped.

        As they are, it is plain Gumbel-softmax without residuals.

        >>> import dcgraph as dc
        >>> dc.Dials.constant(dc.Discrete(4, 3), tau=2.0, beta=2.0)
        Dials(tau=2, beta=2, alpha=1, every=1)  # 0 schedule steps, 1 model
        """
        return cls(tau=tau, beta=beta, alpha=alpha).attach(model)

    @classmethod
    def recommended(
        cls,
        model: torch.nn.Module,
        closure: Callable[[], object] | None = None,
        steps: int = 20_000,
        *,
        tau: Setting | Sequence[Setting] | None = None,
        beta: Setting | Sequence[Setting] | None = None,
        alpha: Setting | Sequence[Setting] | None = None,
        every: int | None = None,
        verbose: bool = True,
    ) -> Dials:
        r"""The settings to start with, attached to ``model``, and why they were chosen.

        tau is the spread of the logits at the start (their standard deviation within a row, the
        median over the nodes), to the next power of 2 and at least 2. beta is
        :math:`\mathrm{temp\_match}(\tau, 2 / n)`, n the number of schedule steps: it passes tau / 2
        after a third of the run. alpha rises from 0 to 1 in the first quarter. A schedule step is
        a 500th of the run.

        Args:
            model: a model with discrete nodes, or a population: one tau for all its replicas.
            closure: calls the model on a batch, such as ``lambda: model(x)``; its result is not
                used. It runs in training mode without gradients, and nothing changes by it. Where
                tau is given it is not needed.
            steps: training steps of the whole run: how often you will call :meth:`step`.
            tau, beta, alpha, every: settings that you choose yourself; None chooses them for you.
            verbose: print what was chosen and why.

        >>> import torch, dcgraph as dc
        >>> node = dc.Discrete(4, 3)
        >>> with torch.no_grad():
        ...     _ = node.codebook.copy_(torch.eye(4)[:3] * 3)
        >>> dials = dc.Dials.recommended(node, lambda: node(torch.eye(4)), steps=1000)
        tau = 2: the logits of the node spread by 1.2 at the start; the next power of 2.
        beta = temp_match(2.0, gamma=0.004): half of tau after 347 of 1,000 steps, 86 % at the end.
        alpha = linear(0, 1, 125): no residual is left from step 250 on.
        every = 2: 500 schedule steps in the run.
        """
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise ValueError(
                f"steps={steps}, but a run has a whole number of training steps, >= 1."
            )
        every = max(1, steps // _SCHEDULE_STEPS) if every is None else every
        reasons = []
        if not _has_choices(model):
            tau, beta = 1.0 if tau is None else tau, 1.0 if beta is None else beta
            reasons.append("tau and beta do not matter: the model has DropRes, but no choices.")
        if tau is None:
            if closure is None:
                raise ValueError(
                    "tau is chosen from the logits; pass a closure that calls the model on a "
                    "batch, or tau."
                )
            tau, reason = _recommended_tau(model, closure)
            reasons.append(reason)
        schedule_steps = steps / every
        if beta is None:
            gamma = _rounded(2 / schedule_steps)
            taus = list(tau) if isinstance(tau, list | tuple) else [tau]
            numbers = [one for one in taus if isinstance(one, int | float)]
            if len(numbers) < len(taus):
                raise ValueError(
                    "tau is a schedule, which beta cannot follow by itself; give beta."
                )
            betas = [temp_match(one, gamma) for one in numbers]
            beta = betas if isinstance(tau, list | tuple) else betas[0]
            half, last = round(math.log(2) / 2 * steps), 1 - math.exp(-2)
            given = tau if isinstance(tau, int | float) else "tau"
            reasons.append(
                f"beta = temp_match({given}, gamma={gamma:g}): half of tau after {half:,} of "
                f"{steps:,} steps, {last:.0%} at the end.".replace("%", " %")
            )
        if alpha is None:
            alpha = linear(0, 1, max(1, round(schedule_steps / 4)))
            end = max(1, round(schedule_steps / 4)) * every
            reasons.append(f"alpha = {alpha}: no residual is left from step {end:,} on.")
        reasons.append(f"every = {every}: {schedule_steps:,.0f} schedule steps in the run.")
        if verbose:
            print("\n".join(reasons))  # noqa: T201
        return cls(tau=tau, beta=beta, alpha=alpha, every=every).attach(model)

    @property
    def schedule_steps(self) -> int:
        """t, the number of schedule steps so far."""
        return self._calls // self.every

    def values(self) -> dict[str, Any]:
        """The current tau, beta and alpha."""
        return self.at(self._calls)

    def at(self, step: int) -> dict[str, Any]:
        """tau, beta and alpha after that many training steps; changes nothing.

        A dial that was given for every replica has a list of numbers.

        >>> import dcgraph as dc
        >>> dc.Dials(tau=8.0, beta=0.0, alpha=dc.linear(0, 1, 4), every=100).at(250)
        {'tau': 8.0, 'beta': 0.0, 'alpha': 0.5}
        """
        if step < 0:
            raise ValueError(f"step={step}, but training steps are counted from 0.")
        t = step // self.every
        return {
            name: [_at(name, one, t) for one in some]
            if isinstance(some, tuple)
            else _at(name, some, t)
            for name, some in self._schedules.items()
        }

    def attach(self, model: torch.nn.Module, replica: int | None = None) -> Dials:
        """Set tau, beta and alpha in ``model``, now and at every schedule step; returns the dials.

        A model that was copied or loaded afresh is another model: attach it as well. A part of a
        model can have dials of its own, but each node only one: the last to step wins.

        Args:
            model: a model, or a :class:`dcgraph.Population`.
            replica: of a population, if these dials are only for that one.
        """
        from ._dialled import attach, dialled  # imports torch, which schedules do without

        if not dialled(model):
            raise ValueError(
                f"{type(model).__name__} has no discrete nodes; put a dcgraph.Discrete or "
                "dcgraph.Categorical into it before attaching the dials."
            )
        replicas = getattr(model, "replicas", None)
        if replica is not None and not (replicas and 0 <= replica < replicas):
            raise ValueError(
                f"replica={replica}, but {type(model).__name__} has "
                + (f"replicas 0 to {replicas - 1}." if replicas else "none; leave it out.")
            )
        attach(model, self._clock())
        if not any(one is model and other == replica for one, other in self._models):
            self._models.append((model, replica))
        self._write()
        self._own_position().publish(self._calls)
        return self

    def step(self) -> None:
        """Count one training step; once in ``every`` calls it is a schedule step."""
        self._calls += 1
        self._clock().steps = self._calls
        if self._calls % self.every == 0:
            self._write()
            if self._models and self._clock().moves:
                self._own_position().publish(self._calls)
                self._own_position().compare(self._calls, self.every)

    def seek(self, step: int) -> None:
        """Go to a training step: as if :meth:`step` had been called that often.

        >>> import dcgraph as dc
        >>> dials = dc.Dials(alpha=dc.linear(0, 1, 4), every=100)
        >>> dials.seek(250)
        >>> dials.values()["alpha"]
        0.5
        """
        self.at(step)
        self._calls = step
        self._clock().steps = step
        self._write()
        if self._models:
            self._own_position().publish(step)

    def _clock(self) -> Clock:
        """What the nodes see of the steps."""
        if self._own_clock is None:
            from ._dialled import Clock  # imports torch, which schedules do without

            every = [one for some in self._schedules.values() for one in _each(some)]
            self._own_clock = Clock(moves=not all(map(is_constant, every)), steps=self._calls)
        return self._own_clock

    def _own_position(self) -> Position:
        """What other ranks see of the steps."""
        if self._position is None:
            from ._ranks import Position  # imports torch, which schedules do without

            self._position = Position()
        return self._position

    def __getstate__(self) -> dict[str, Any]:
        """All except the place among the dials of this process."""
        return {**self.__dict__, "_position": None}

    def _write(self) -> None:
        from ._dialled import set_dials  # imports torch, which schedules do without

        values = self.values()
        for model, replica in self._models:
            set_dials(model, values, replica)

    def state_dict(self) -> dict[str, Any]:
        """How far the schedules are; the schedules themselves are code, not state."""
        return {"calls": self._calls, "every": self.every}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        if set(state) != {"calls", "every"} or type(state["calls"]) is not int:
            keys = shown(sorted(map(str, state)))
            raise ValueError(f"this is not a state of Dials: it has the keys {keys}.")
        if state["every"] != self.every:
            raise ValueError(
                f"the state was saved with every={shown(state['every'])}, but these dials have "
                f"every={self.every}; build them with the saved one."
            )
        self.seek(state["calls"])

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={_formatted(value)}" for name, value in self.values().items())
        models = f"{len(self._models)} model" + ("" if len(self._models) == 1 else "s")
        steps = f"{self.schedule_steps} schedule step" + ("" if self.schedule_steps == 1 else "s")
        return f"Dials({values}, every={self.every})  # {steps}, {models}"


_SCHEDULE_STEPS = 500
"""In a run with recommended settings: the dials change smoothly, and a step costs nothing."""


def _schedules(name: str, setting: Setting | Sequence[Setting]) -> Schedule | tuple[Schedule, ...]:
    if isinstance(setting, list | tuple):
        if not setting:
            raise ValueError(f"{name} is an empty list; give one value for each replica.")
        return tuple(_schedule(f"{name}[{i}]", one) for i, one in enumerate(setting))
    return _schedule(name, setting)


def _schedule(name: str, setting: object) -> Schedule:
    if callable(setting):
        return setting
    check_number(name, setting, "pass a number or a schedule.")
    return constant(setting)  # type: ignore[arg-type]


def _each(some: Schedule | tuple[Schedule, ...]) -> tuple[Schedule, ...]:
    return some if isinstance(some, tuple) else (some,)


def _at(name: str, schedule: Schedule, t: int) -> float:
    value = float(schedule(t))
    try:
        check_range(name, value)
    except ValueError as error:
        raise ValueError(f"the schedule at t={t} gives {error}") from None
    return value


def _formatted(value: float | list[float]) -> str:
    if not isinstance(value, list):
        return f"{value:g}"
    each = [f"{one:g}" for one in value]
    if len(each) > 6:
        each = [*each[:3], "...", each[-1]]
    return f"[{', '.join(each)}]"


def _rounded(value: float) -> float:
    """Three digits, as they are printed."""
    return float(f"{value:.3g}")


def _has_choices(model: torch.nn.Module) -> bool:
    from ._dialled import dialled  # imports torch, which schedules do without

    modules = dialled(model)
    return not modules or any("tau" in module.dial_names for module in modules)


def _recommended_tau(model: torch.nn.Module, closure: Callable[[], object]) -> tuple[float, str]:
    """From the spread of the logits of all nodes, and what it was."""
    from ._observe import logit_spreads  # imports torch, which schedules do without

    spreads = logit_spreads(model, closure)
    typical = sorted(spreads)[len(spreads) // 2]
    tau = 2.0 ** max(1, math.ceil(math.log2(typical))) if typical > 0 else 2.0
    calls = "the node" if len(spreads) == 1 else f"{len(spreads)} calls of nodes"
    range_ = f"{min(spreads):.2g} to {max(spreads):.2g}, {typical:.2g} in the middle,"
    spread = f"{typical:.2g}" if len(spreads) == 1 else range_
    rule = "the next power of 2" if typical > 1 else "2 is the least, for they will grow"
    reason = f"tau = {tau:g}: the logits of {calls} spread by {spread} at the start; {rule}."
    if max(spreads) > 8 * max(1.0, min(spreads)):
        reason += " They differ much: give parts of the model, or replicas, dials of their own."
    return tau, reason
