"""Studies of a hyper-parameter search: the space, the storage, and who takes which trials.

Optuna has the distributions, the samplers, the pruners and the storage. What is added here is what
several workers need that take a population of trials at a time and may be killed at any moment: a
lock that a dead process gives back, and the way in which the trials of dead workers are taken up.

When a worker is dead, its trial has failed, and a new trial of the study with the same parameters
takes its place, as Optuna has it. To the user both are one trial. Trials are counted from 0, those
that take the place of another not at all.
"""

from __future__ import annotations

import errno
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal, TypeVar, get_type_hints
from uuid import uuid4

import optuna
import sqlalchemy
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, Trial, TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from .errors import StudyError, shortened
from .files import only_process_in
from .settings import Settings, Sweep

S = TypeVar("S", bound=Settings)

Sampler = Literal["tpe", "random"]
Pruner = Literal["median", "halving", "none"]

POPULATION = "population"
"""The attribute of a trial that names the population it is trained in."""

_BEGUN = "begun"  # that of a trial whose heart beats: its own number, for a retry inherits it
_ABOUT = "dcgraph"  # that of a study: what it is about
_RETRIES = 100  # a trial whose workers all die is given up at last
_PATIENCE = 600.0  # seconds to wait while another worker takes trials
_ANSWER = 10  # seconds to wait for a server
_KEY = 0x6463  # of our lock among those of a database


def space_of(sweeps: Sequence[Sweep], settings: Settings) -> dict[str, BaseDistribution]:
    """The distributions to search, by the names of the settings.

    A range is ordered, also one in steps; the values of a list are taken as mere names.
    """
    names = [sweep.name for sweep in sweeps]
    if len(set(names)) < len(names):
        raise ValueError(f"a setting is swept twice: {', '.join(names)}.")
    if not names:
        raise ValueError("there is nothing to search; add --sweep lr=1e-4..1e-2:log")
    for sweep in sweeps:  # what the setting cannot be is said now, not hours later
        for value in sweep.values or (sweep.low, sweep.high):
            settings_with(settings, {sweep.name: value})
    return {sweep.name: _distribution(sweep, settings) for sweep in sweeps}


def _distribution(sweep: Sweep, settings: Settings) -> BaseDistribution:
    low, high, step = sweep.low, sweep.high, sweep.step
    if sweep.values and not step:
        return CategoricalDistribution(list(dict.fromkeys(sweep.values)))
    if get_type_hints(type(settings))[sweep.name] is int:
        return IntDistribution(round(low), round(high), log=sweep.logarithmic, step=int(step) or 1)
    return FloatDistribution(low, high, log=sweep.logarithmic, step=step or None)


def settings_with(settings: S, parameters: Mapping[str, Any]) -> S:
    """These settings with the parameters of a trial."""
    types = get_type_hints(type(settings))
    # What adding steps has left in the last digits would be another setting.
    changed: dict[str, Any] = {
        name: float(f"{value:.15g}") if types[name] is float else types[name](round(value))
        for name, value in parameters.items()
    }
    return replace(settings, **changed)


class Storage:
    """The database of some studies; SQLite for the workers of one machine, PostgreSQL for many.

    Args:
        url: as SQLAlchemy has it, sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE.
        grace: seconds after which a worker that says nothing is taken for dead.

    Raises:
        StudyError: where the database does not answer, or is of another kind.
    """

    def __init__(self, url: str, grace: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):  # the latter of a port, with a part of the password
            raise StudyError(f"the storage {hidden(url)!r} is no URL; {_URLS}") from None
        kind = parsed.get_backend_name()
        if kind not in ("sqlite", "postgresql") or not parsed.database:
            raise StudyError(f"the storage {hidden(url)!r} cannot be used; {_URLS}")
        if kind == "postgresql" and url.partition("?")[0].count("@") > 1:
            # A part of the password would be taken for the host, and said.
            raise StudyError(f"the storage {hidden(url)!r}: write @ in a password as %40.")
        self.name = hidden(url)
        self.heartbeat = max(1, grace // 4)
        self._file = Path(parsed.database) if kind == "sqlite" else None
        if kind == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        waits = (
            {"timeout": 60}
            if self._file
            else {"connect_timeout": _ANSWER, "client_encoding": "utf8"}
        )
        options = {"connect_args": waits, "pool_pre_ping": self._file is None}
        self._engine = sqlalchemy.create_engine(parsed, **options)
        try:
            with self.answers(), self.turn(), _calm():  # tables are made by one worker
                self.rdb = RDBStorage(
                    parsed.render_as_string(hide_password=False),
                    engine_kwargs=options,
                    heartbeat_interval=self.heartbeat,
                    grace_period=grace,
                )
        except BaseException:
            self._engine.dispose()
            raise

    @contextmanager
    def turn(self) -> Iterator[None]:
        """No other worker takes trials meanwhile; one that dies gives its turn back."""
        with ExitStack() as held:
            if self._file is not None:  # Optuna's own locks are not for SQLite
                deadline = time.monotonic() + _PATIENCE
                while True:
                    try:
                        held.enter_context(only_process_in(self._file.absolute().parent))
                        break
                    except OSError as error:
                        if error.errno != errno.EBUSY or time.monotonic() > deadline:
                            raise
                    time.sleep(0.02)
            else:
                connection = held.enter_context(self._engine.begin())
                wait = sqlalchemy.text(f"SET LOCAL lock_timeout = '{_PATIENCE:.0f}s'")
                connection.execute(wait)
                connection.execute(sqlalchemy.text(f"SELECT pg_advisory_xact_lock({_KEY})"))
            yield

    @contextmanager
    def answers(self) -> Iterator[None]:
        """What the database complains of is one line."""
        try:
            yield
        except (SQLAlchemyError, StorageInternalError, RuntimeError) as error:
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, SQLAlchemyError):
                cause = cause.__cause__
            if cause is None and isinstance(error, RuntimeError):
                if "schema" in str(error):  # of another version of Optuna
                    raise StudyError(f"the storage {self.name!r}: {shortened(error)}") from error
                raise
            said = shortened(getattr(cause, "orig", None) or cause or error)
            raise StudyError(
                f"the storage {self.name!r} does not answer ({said}); with a database that does, "
                "the same command goes on."
            ) from error

    def names(self) -> list[str]:
        """Of the studies that are there."""
        return optuna.get_all_study_names(self.rdb)

    def close(self) -> None:
        self.rdb.remove_session()
        self.rdb.engine.dispose()
        self._engine.dispose()

    def study(self, name: str) -> optuna.Study:
        """A study that is there."""
        try:
            return optuna.load_study(study_name=name, storage=self.rdb)
        except KeyError:
            known = ", ".join(map(repr, self.names())) or "none"
            raise StudyError(
                f"there is no study {name!r} in {self.name!r}; there are: {known}."
            ) from None

    def begin(self, name: str, about: Mapping[str, Any], pruner: Pruner) -> optuna.Study:
        """A study, made if need be.

        Raises:
            StudyError: if there is one of this name that is about something else.
        """
        with self.turn():
            study = optuna.create_study(
                study_name=name,
                storage=self.rdb,
                pruner=_pruner(pruner),
                direction="maximize",
                load_if_exists=True,
            )
            known = about_of(study)
            if not known and not study.get_trials(deepcopy=False):
                study.set_user_attr(_ABOUT, {**about, "id": uuid4().hex})
                return study
        if not known:
            raise StudyError(
                f"study {name!r} in {self.name!r} is of another program; choose another --study."
            )
        if changed := _differences(known, about):
            raise StudyError(
                f"study {name!r} in {self.name!r} was begun with others: {changed}; "
                "choose another --study, or begin again with what it has."
            )
        return study

    def take(
        self,
        study: optuna.Study,
        space: dict[str, BaseDistribution],
        count: int,
        limit: int,
        sampler: Sampler,
        seed: int,
    ) -> list[tuple[int, Trial]]:
        """Some trials to train, with their numbers; those of a dead worker first, and together.

        Args:
            study: the study.
            space: its space.
            count: how many new trials at most.
            limit: how many trials the study has in the end.
            sampler: how parameters of new trials are drawn.
            seed: of the sampler, whose draws depend on the number of the trial too.
        """
        with self.turn(), _calm():
            trials = study.get_trials(deepcopy=False)
            for trial in trials:  # whose worker died while it was its turn
                if trial.state == TrialState.RUNNING and not _has_begun(trial):
                    study.tell(trial.number, state=TrialState.FAIL)
            optuna.storages.fail_stale_trials(study)
            trials = study.get_trials(deepcopy=False)
            waiting = [trial for trial in trials if trial.state == TrialState.WAITING]
            lost = _lost(trials)
            first = next(iter((*waiting, *lost)), None)
            if first is not None:
                place = first.user_attrs.get(POPULATION)
                again = [trial for trial in lost if trial.user_attrs.get(POPULATION) == place]
                again = again if place else again[:count]
                retry = RetryHeartbeatStaleTrialCallback(max_retry=_RETRIES)
                for trial in again:
                    retry(study, trial)
                count = len(waiting) + len(again)
            else:
                count = max(0, min(count, limit - len(_firsts(trials))))
            study.sampler = _sampler(sampler, seed + len(trials))
            taken = [study.ask(space) for _ in range(count)]
            for one in taken:
                self.rdb.record_heartbeat(one._trial_id)
                one.set_user_attr(_BEGUN, one.number)
            trials = study.get_trials(deepcopy=False)
            numbers = {first: number for number, first in enumerate(_firsts(trials))}
            return [(numbers[_first(trials[one.number])], one) for one in taken]

    @contextmanager
    def beating(self, trials: Sequence[Trial]) -> Iterator[None]:
        """Say of these trials that their worker is alive, every few seconds."""
        done = Event()

        def beat() -> None:
            while not done.wait(self.heartbeat):
                with suppress(SQLAlchemyError, StorageInternalError):  # or the next time
                    for trial in trials:
                        self.rdb.record_heartbeat(trial._trial_id)
            self.rdb.remove_session()

        thread = Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


_URLS = "write sqlite:///FILE, or postgresql://USER:PASSWORD@HOST/DATABASE."


def hidden(url: str) -> str:
    """A text with a URL, without the password.

    >>> hidden("--storage=postgresql://me:secret@host/searches")
    '--storage=postgresql://me:***@host/searches'
    """
    url = re.sub(r"((?:://|^[\w+]+:/?)[^:@/]*):.*@", r"\1:***@", url)
    return re.sub(r"(password=)[^&\s]*", r"\1***", url)


def about_of(study: optuna.Study) -> dict[str, Any]:
    """What :meth:`Storage.begin` was given; empty for a study of somebody else's."""
    about = study.user_attrs.get(_ABOUT, {})
    return about if isinstance(about, dict) else {}


def in_json(space: Mapping[str, BaseDistribution]) -> dict[str, str]:
    """A space as a study keeps it."""
    return {name: distribution_to_json(one) for name, one in space.items()}


def _first(trial: FrozenTrial) -> int:
    """Optuna's number of a trial; of one that takes the place of another, that of the other."""
    return int(trial.system_attrs.get("failed_trial", trial.number))


def _firsts(trials: Sequence[FrozenTrial]) -> list[int]:
    return sorted(set(map(_first, trials)))


def latest(study: optuna.Study) -> list[FrozenTrial]:
    """The trials in their order: of those that were tried again, the last one."""
    trials = study.get_trials(deepcopy=False)
    found = {_first(trial): trial for trial in trials}
    return [found[first] for first in _firsts(trials)]


def ranked(trials: Sequence[FrozenTrial]) -> list[tuple[int, FrozenTrial]]:
    """Those that were trained to the end, with their numbers, the best first."""
    complete = [(k, one) for k, one in enumerate(trials) if one.state == TrialState.COMPLETE]
    return sorted(complete, key=lambda item: -(item[1].value or 0.0))


def is_finished(trial: FrozenTrial) -> bool:
    """Whether nobody has to train it again; for one of :func:`latest`."""
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED) or _is_given_up(trial)


def _is_given_up(trial: FrozenTrial) -> bool:
    history = trial.system_attrs.get("retry_history", [])
    return trial.state == TrialState.FAIL and len(history) >= _RETRIES


def _lost(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Trials of dead workers whose place nobody has taken."""
    taken = {number for trial in trials for number in trial.system_attrs.get("retry_history", [])}
    return [
        trial
        for trial in trials
        if trial.state == TrialState.FAIL and trial.number not in taken and not _is_given_up(trial)
    ]


def _has_begun(trial: FrozenTrial) -> bool:
    return bool(trial.user_attrs.get(_BEGUN) == trial.number)


def _sampler(name: Sampler, seed: int) -> optuna.samplers.BaseSampler:
    kind = optuna.samplers.TPESampler if name == "tpe" else optuna.samplers.RandomSampler
    return kind(seed=seed)


def _pruner(name: Pruner) -> optuna.pruners.BasePruner:
    """Their steps are evaluations, counted from 1."""
    if name == "median":
        return optuna.pruners.MedianPruner()
    if name == "halving":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=1)
    return optuna.pruners.NopPruner()


def _differences(known: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    """What is not as it was, in words; a setting that is younger than the study is not counted."""
    said = []
    for name, now in about.items():
        then = known.get(name)
        if isinstance(now, Mapping) and isinstance(then, Mapping):
            names = then if name == "settings" else {**then, **now}
            said += [
                f"{name} {one}: {then.get(one, 'none')}, now {now.get(one, 'none')}"
                for one in names
                if then.get(one) != now.get(one)
            ]
        elif then != now:
            said.append(f"{name}: {then}, now {now}")
    return "; ".join(said)


@contextmanager
def _calm() -> Iterator[None]:
    """Optuna warns of what is experimental, and of a heartbeat without its own loop."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        warnings.filterwarnings("ignore", message="Heartbeat of storage")
        yield
