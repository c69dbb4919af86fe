"""Settings of a run, and sweeps over them.

A *replica* is one model in training, described by its :class:`Settings`. Settings marked
:func:`per_replica` are numbers that may differ between the replicas of one population; all others
decide what the program looks like, so replicas that differ in one of them train in different
populations. Nothing here imports torch: tables are shown without it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, TypedDict, TypeVar, get_args, get_origin, get_type_hints

from ..._arguments import EstimatorName, check_choice, check_range, closest, shown
from ...dials import Dials
from ...schedules import Schedule, constant, exponential, linear, temp_match

NEED_THE_LOSS = "reinforce", "rebar", "relax", "topk_sparsemax", "enumeration"
"""Estimators that run the network several times, see :func:`dcgraph.surrogate`."""

MOST_RUNS = 4096
"""Of the network for one estimate."""

S = TypeVar("S", bound="Settings")
Number = bool | int | float


class Schedules(TypedDict):
    """What :class:`dcgraph.Dials` is built from."""

    tau: Schedule
    beta: Schedule
    alpha: Schedule


def setting(default: Any, help: str) -> Any:
    """A setting that all replicas of a population have in common."""
    return field(default=default, metadata={"help": help, "per_replica": False})


def per_replica(default: Any, help: str) -> Any:
    """A setting that each replica of a population has for itself; only for :class:`Settings`."""
    return field(default=default, metadata={"help": help, "per_replica": True})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every task has in common; a task's settings extend it."""

    renamed: ClassVar[Mapping[str, str]] = {}
    """Settings that were called otherwise once: the old name and the new one."""

    epochs: int = setting(
        30, "passes over the training examples; 0: the initial weights are tested"
    )
    batch: int = setting(16, "examples per step")
    schedule_steps: int = setting(8, "steps of the schedules of tau, beta and alpha per epoch")
    evaluations: int = setting(2, "evaluations per epoch")
    evaluate_every: int = setting(1, "epochs from one evaluation to the next; the last one has one")
    lr: float = per_replica(1e-4, "learning rate of Adam")
    decay: float = per_replica(
        1.0, "share of training after which lr falls linearly to 0; 1: never"
    )
    average: float = per_replica(
        0.0, "decay of the moving average of weights that is tested; 0: none"
    )
    tau: float = per_replica(1.0, "temperature of the nodes")
    tempmatch: bool = per_replica(True, "let the noise scale beta grow towards tau")
    beta_share: float = per_replica(1.0, "what beta grows towards, as a share of tau")
    gamma: float = per_replica(0.008, "rate of that growth, and of annealing, per schedule step")
    beta: float = per_replica(1.0, "noise scale without TempMatch")
    anneal: bool = per_replica(False, "anneal tau to 1 instead")
    dropres: bool = per_replica(True, "residuals around the nodes, dropped more and more often")
    alpha_step: float = per_replica(
        0.002, "growth of the share of dropped residuals, per schedule step"
    )
    estimator: EstimatorName = setting(  # noqa: RUF009
        "gumbel_softmax", "gradient estimator of the nodes"
    )
    prune: float = setting(
        0.0, "halfway, categories with less than this share of the choices are pruned; 0: none"
    )
    seed: int = per_replica(0, "seed of the initial weights and of the order of the examples")

    def __post_init__(self) -> None:
        types = get_type_hints(type(self))
        for one in fields(self):
            value = getattr(self, one.name)
            if one.metadata.get("per_replica") and one.name not in _COMMON:
                raise ValueError(
                    f"{one.name!r} is marked per_replica, but a population can give each replica "
                    "only the numbers the loop itself uses; mark it setting(): a sweep then trains "
                    "one population per value."
                )
            _check_kind(one.name, value, types[one.name])
        _require(self, "epochs", self.epochs >= 0, "a number of epochs is at least 0.")
        _require(self, "prune", 0 <= self.prune < 1, "a share of the choices lies in [0, 1).")
        for name in ("batch", "schedule_steps", "evaluations", "evaluate_every"):
            _require(self, name, getattr(self, name) >= 1, "at least 1 is needed.")
        if self.evaluate_every > 1 and self.evaluations > 1:
            raise ValueError(
                f"evaluations={self.evaluations} per epoch and evaluate_every={self.evaluate_every}"
                " epochs exclude each other; leave one of them at 1."
            )
        check_range("tau", self.tau)
        check_range("beta", self.beta)
        _require(self, "gamma", self.gamma > 0, "the rate of growth is > 0.")
        _require(self, "alpha_step", self.alpha_step > 0, "the growth per schedule step is > 0.")
        _require(self, "beta_share", self.beta_share > 0, "a share of tau is > 0.")
        _require(self, "seed", 0 <= self.seed < 2**32, "a seed is between 0 and 4294967295.")
        _require(self, "lr", self.lr > 0, "a learning rate is > 0.")
        _require(self, "decay", 0 < self.decay <= 1, "a share of training lies in (0, 1].")
        _require(self, "average", 0 <= self.average < 1, "a decay lies in [0, 1).")
        self.schedules()

    def schedules(self) -> Schedules:
        """Of tau, beta and alpha: the paper's, or what these settings put in their place."""
        end = min(1.0, self.tau)
        tau, beta, alpha = constant(self.tau), constant(self.beta), constant(1.0)
        if self.anneal and self.tau > end:
            tau = exponential(self.tau, end, math.log(self.tau / end) / self.gamma)
        if self.tempmatch:
            beta = temp_match(self.tau * self.beta_share, self.gamma)
        if self.dropres:
            alpha = linear(0.0, 1.0, 1 / self.alpha_step)
        return {"tau": tau, "beta": beta, "alpha": alpha}

    def structure(self) -> Settings:
        """These settings with what each replica has for itself set to its defaults."""
        own: dict[str, Any] = {
            f.name: f.default for f in fields(self) if f.metadata.get("per_replica")
        }
        return dataclasses.replace(self, **own)


def dials_of(replicas: Sequence[Settings], every: int = 1) -> Dials:
    """Each replica with its own schedules."""
    schedules = [replica.schedules() for replica in replicas]
    return Dials(
        tau=[own["tau"] for own in schedules],
        beta=[own["beta"] for own in schedules],
        alpha=[own["alpha"] for own in schedules],
        every=every,
    )


_COMMON = frozenset(f.name for f in fields(Settings))


def _require(settings: Settings, name: str, fine: bool, remedy: str) -> None:
    if not fine:
        raise ValueError(f"{name}={shown(getattr(settings, name))}, but {remedy}")


def _check_kind(name: str, value: object, kind: Any) -> None:
    """Whatever the value comes from: a command line, a record, the plan of a run."""
    if get_origin(kind) is Literal:
        check_choice(name, value, get_args(kind))
        return
    if kind not in _KINDS:  # a task's own
        return
    fitting = (int, float) if kind is float else kind
    if not isinstance(value, fitting) or (isinstance(value, bool) and kind is not bool):
        kind_of_value = type(value).__name__
        raise TypeError(f"{name}={shown(value)} is a {kind_of_value}; {_KINDS[kind]} is needed.")
    if isinstance(value, int) and abs(value) >= _LARGEST_WHOLE:
        raise ValueError(f"{name} is a whole number of 13 digits or more; use a smaller one.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name}={value}, but a finite number is needed.")


_LARGEST_WHOLE = 10**12  # so that the steps of all epochs fit into 64 bits
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def from_dict(kind: type[S], values: dict[str, Any]) -> S:
    """Settings from a record or checkpoint, which have all of them; unknown names are an error.

    So one that lacks a new name was written before something else got the old one.
    """
    if not isinstance(values, dict):
        raise TypeError(f"settings are {values!r:.40}")
    for old, new in kind.renamed.items():
        if old in values and new not in values:
            values = {new if name == old else name: value for name, value in values.items()}
    known = {f.name for f in fields(kind)}
    for name in values:
        if name not in known:
            raise ValueError(f"unknown setting {shown(name)}; {closest(name, sorted(known))}")
    return kind(**values)


@dataclass(frozen=True)
class Sweep:
    """One setting and the values it takes: a list, or a range to draw from.

    A range in steps is a list, too: its values, from ``low`` to ``high`` at equal distances.
    """

    name: str
    values: tuple[Number, ...] = ()
    low: float = 0.0
    high: float = 0.0
    logarithmic: bool = False
    step: float = 0.0

    def draw(self, rng: random.Random) -> float:
        if self.logarithmic:
            return math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        return rng.uniform(self.low, self.high)


def parse_sweep(text: str, settings: Settings) -> Sweep:
    """``tau=1,2,4`` is a list, ``lr=1e-4..1e-2`` a range, ``lr=1e-4..1e-2:log`` a logarithmic one.

    A range may have steps: ``tau=1..8:0.5`` adds 0.5 from value to value, ``lr=1e-4..1e-2:x10``
    multiplies by 10.

    >>> parse_sweep("lr=1e-4..1e-2:log", Settings())
    Sweep(name='lr', values=(), low=0.0001, high=0.01, logarithmic=True, step=0.0)
    >>> parse_sweep("lr=1e-4..1e-2:x10", Settings()).values
    (0.0001, 0.001, 0.01)
    """
    name, equals, right = text.partition("=")
    if not equals or not right:
        raise ValueError(
            f"sweep {shown(text)} is not of the form name=1,2,4 or name=1e-4..1e-2:log."
        )
    _check_numeric(name, settings)
    try:
        if ".." not in right:
            values = tuple(_number(name, word, settings) for word in right.split(","))
            return Sweep(name, values)
        span, _, scale = right.partition(":")
        low, high = (_converted(float, end, f"{name}=1..2") for end in span.split("..", 1))
        if not math.isfinite(low) or not math.isfinite(high):
            raise ValueError("the ends of a range are finite numbers.")
        stepped = scale not in ("", "log")
        step = _converted(float, scale.removeprefix("x"), f"{name}=1..2:0.1") if stepped else 0.0
    except ValueError as error:
        raise ValueError(f"sweep {shown(text)}: {error}") from None
    if get_type_hints(type(settings))[name] is bool:
        raise ValueError(f"sweep {shown(text)}: a switch has no range; use {name}=0,1.")
    factor = scale.startswith("x")
    if not low < high or (low <= 0 and (scale == "log" or factor)):
        raise ValueError(
            f"sweep {shown(text)}: a range is low..high with low < high, "
            "and :log after it (low > 0) draws on a logarithmic scale."
        )
    if not stepped:
        return Sweep(name, low=low, high=high, logarithmic=scale == "log")
    if not (step > 1 if factor else 0 < step <= high - low):
        raise ValueError(
            f"sweep {shown(text)}: steps are {name}=0..1:0.1 (0.1 is added) or {name}=1..100:x10 "
            "(low > 0, multiplied by 10)."
        )
    steps = math.log(high / low, step) if factor else (high - low) / step
    if not steps < _MOST_STEPS:
        raise ValueError(f"sweep {shown(text)}: more than {_MOST_STEPS} steps; take larger ones.")
    count = int(steps + 1e-6) + 1
    reached = [_clean(low * step**k if factor else low + k * step) for k in range(count)]
    kind = get_type_hints(type(settings))[name]
    if kind is int and any(value != int(value) for value in reached):
        raise ValueError(f"sweep {shown(text)}: {name} is a whole number; take whole steps.")
    listed = tuple(kind(value) for value in reached)
    return Sweep(name, listed) if factor else Sweep(name, listed, low, reached[-1], step=step)


_MOST_STEPS = 1000


def _clean(value: float) -> float:
    """Without what adding has left in the last digits.

    >>> _clean(0.1 + 0.2)
    0.3
    """
    return float(f"{value:.12g}")


def _check_numeric(name: str, settings: Settings) -> None:
    types = get_type_hints(type(settings))
    numeric = [n for n, t in types.items() if t in (int, float, bool) and n != "seed"]
    if name not in numeric:
        raise ValueError(f"cannot sweep {shown(name)}; {closest(name, numeric)}")


def _number(name: str, word: str, settings: Settings) -> Number:
    kind = get_type_hints(type(settings))[name]
    if kind is bool:
        known = {"0": False, "1": True, "false": False, "true": True, "off": False, "on": True}
        if word.lower() not in known:
            raise ValueError(f"{name} is a switch: 0 or 1, not {shown(word)}.")
        return known[word.lower()]
    return _converted(kind, word, f"{name}=1,2")


def _converted(kind: type[int | float], word: str, example: str) -> int | float:
    try:
        return kind(word)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ValueError(f"{shown(word)} is not {what}; write {example}.") from None


def expand(
    base: S, sweeps: Sequence[Sweep] = (), seeds: int = 1, draws: int = 0, search_seed: int = 0
) -> list[S]:
    """The replicas of a sweep: every combination of the lists, ``seeds`` of each.

    Ranges are drawn from ``draws`` times, jointly; every draw is combined with every element of the
    lists. The seeds are base.seed, base.seed + 1, ...

    >>> [(s.tau, s.seed) for s in expand(Settings(), [Sweep("tau", (1.0, 2.0))], seeds=2)]
    [(1.0, 0), (1.0, 1), (2.0, 0), (2.0, 1)]
    """
    names = [sweep.name for sweep in sweeps]
    if len(set(names)) < len(names):
        raise ValueError(f"a setting is swept twice: {', '.join(names)}.")
    if seeds < 1:
        raise ValueError(f"seeds={seeds}, but at least 1 is needed.")
    ranges = [sweep for sweep in sweeps if not sweep.values]
    if bool(ranges) != (draws > 0):
        raise ValueError(
            "a range needs a number of draws, and draws need a range: "
            "--sweep lr=1e-4..1e-2:log --draws 20"
        )
    rng = random.Random(search_seed)
    types = get_type_hints(type(base))
    drawn: Iterable[dict[str, Any]] = [
        {s.name: types[s.name](round(v) if types[s.name] is int else v) for s, v in one}
        for one in ([(s, s.draw(rng)) for s in ranges] for _ in range(draws))
    ] or [{}]
    lists = [sweep for sweep in sweeps if sweep.values]
    combinations = itertools.product(*(sweep.values for sweep in lists))
    listed: list[dict[str, Any]] = [
        dict(zip([s.name for s in lists], values, strict=True)) for values in combinations
    ]
    replicas = [
        dataclasses.replace(base, **one, **two, seed=base.seed + k)
        for one in listed
        for two in drawn
        for k in range(seeds)
    ]
    return list(dict.fromkeys(replicas))  # a value given or drawn twice is one


def populations(replicas: Sequence[S]) -> list[list[S]]:
    """Replicas grouped by structure, in order of first appearance."""
    groups: dict[Settings, list[S]] = {}
    for replica in replicas:
        groups.setdefault(replica.structure(), []).append(replica)
    return list(groups.values())
