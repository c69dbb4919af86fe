"""The worker of a search: takes trials of a study, trains them as populations, says what came out.

A trial is one choice of settings, trained with one seed or with several. Its value is the metric
that the task monitors on the validation split, the best of all evaluations; of several seeds the
mean of it. The test split has no part in it.
"""

from __future__ import annotations

import math
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import optuna
import torch
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import Trial, TrialState

from .errors import CheckpointError, StudyError
from .files import check_inside, only_process_in, read_json, write_json
from .loop import Callbacks, train
from .outcome import Evaluation, Outcome
from .records import write_record
from .runs import make_records, population_name
from .settings import Settings, Sweep, from_dict
from .studies import (
    POPULATION,
    Pruner,
    Sampler,
    Storage,
    about_of,
    in_json,
    is_finished,
    latest,
    settings_with,
    space_of,
)
from .task import AnyTask, Data, Execution


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is searched, and how; a study is about all of it except for the last three."""

    task: AnyTask
    settings: Settings  # what no sweep names, and the first seed
    sweeps: Sequence[Sweep]
    seeds: int = 1  # of each trial
    sampler: Sampler = "tpe"
    pruner: Pruner = "median"
    fit: Callable[[Settings], Settings] = lambda settings: settings  # to the data
    trials: int = 40  # in the end, of all workers
    at_once: int = 8  # trials in one population


def search(
    plan: Search,
    storage: Storage,
    study_name: str,
    out: Path,
    *,
    device: torch.device | str = "cpu",
    data_dir: Path | None = None,
    callbacks: Callable[[Sequence[Settings]], Callbacks] = lambda replicas: Callbacks(),
    say: Callable[[str], None] = lambda line: None,
) -> optuna.Study:
    """Work on a study until it has all of its trials and none of them is running.

    Any number of workers can do so at a time, each killed and begun again. Trials of one that is
    dead are taken by another one, which goes on from their checkpoint if it has the same ``out``.

    Args:
        plan: what is searched.
        storage: where the study is.
        study_name: its name there.
        out: folder for the records of the trials, and for checkpoints on the way.
        device: where to train.
        data_dir: where the data are.
        callbacks: who hears how a population goes.
        say: is given a line now and then.

    Raises:
        StudyError: where the storage does not answer, or the study is about something else.
        Interrupted: after Ctrl-C; the trials go on with the next worker.
    """
    with storage.answers():
        return _Worker(plan, storage, study_name, out, device, data_dir, callbacks, say).work()


@dataclass
class _Candidate:
    """A trial in a population: its replicas, one for each seed."""

    number: int
    replicas: list[Settings]
    trial: Trial | None  # None where it has been finished already
    best: list[float] = field(default_factory=list)  # of each replica
    elsewhere: bool = False  # another worker has it, for we were taken for dead

    def __post_init__(self) -> None:
        self.best = [-math.inf] * len(self.replicas)

    @property
    def value(self) -> float | None:
        """None, as long as a replica was never measured."""
        return statistics.fmean(self.best) if min(self.best) > -math.inf else None


class _Worker:
    def __init__(
        self,
        plan: Search,
        storage: Storage,
        study_name: str,
        out: Path,
        device: torch.device | str,
        data_dir: Path | None,
        callbacks: Callable[[Sequence[Settings]], Callbacks],
        say: Callable[[str], None],
    ) -> None:
        self.plan, self.storage, self.out, self.say = plan, storage, out, say
        self.device, self.data_dir, self.callbacks = device, data_dir, callbacks
        self.space = space_of(plan.sweeps, plan.settings)
        self.base = plan.fit(plan.settings)
        self._loaded: tuple[Settings, Data] | None = None
        data = self._data(self.base)
        if "validation" not in data.splits:
            raise StudyError(
                f"with these settings task {plan.task.name!r} has no validation split to search "
                "by, and the test split is not for that; choose others, such as another --preset."
            )
        swept = self.space
        about = {
            "task": plan.task.name,
            "settings": {k: v for k, v in asdict(plan.settings).items() if k not in swept},
            "space": in_json(self.space),
            "seeds": plan.seeds,
            "data": data.fingerprint,
            "metric": plan.task.execution(self.base).monitor,
            "sampler": plan.sampler,
            "pruner": plan.pruner,
        }
        self.study = storage.begin(study_name, about, plan.pruner)
        self._claim_folder()

    def _claim_folder(self) -> None:
        """Records of two studies would overwrite each other."""
        mine, file = {"study": about_of(self.study)["id"]}, self.out / "study.json"
        check_inside(self.out, self.out / "records", self.out / "populations")
        if not file.exists():
            write_json(file, mine)
        if read_json(file) != mine:
            raise StudyError(f"{str(self.out)!r} has records of another study; choose --out.")

    def _data(self, settings: Settings) -> Data:
        structure = settings.structure()
        if self._loaded is None or self._loaded[0] != structure:
            self._loaded = structure, self.plan.task.data(settings, self.data_dir)
        return self._loaded[1]

    def work(self) -> optuna.Study:
        waits = False
        while True:
            plan = self.plan
            taken = self.storage.take(
                self.study, self.space, plan.at_once, plan.trials, plan.sampler, plan.settings.seed
            )
            if taken:
                waits = False
                with self.storage.beating([trial for _, trial in taken]), self._released(taken):
                    self._train(taken)
                continue
            running = [trial for trial in latest(self.study) if not is_finished(trial)]
            if not running:
                return self.study
            if not waits:
                waits = True
                self.say(f"Waiting for {len(running)} trials that other workers have.")
            time.sleep(self.storage.heartbeat)

    @contextmanager
    def _released(self, taken: Sequence[tuple[int, Trial]]) -> Iterator[None]:
        """What is cut off is for the next worker to take, at once."""
        try:
            yield
        except BaseException:
            for _, trial in taken:
                with suppress(Exception):  # if the storage is what failed, they go stale
                    self.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
            raise

    def _train(self, taken: Sequence[tuple[int, Trial]]) -> None:
        """Trials that were a population go on as one; of the others, those alike train together."""
        places: dict[str, list[tuple[int, Trial]]] = {}
        for number, trial in taken:
            places.setdefault(trial.user_attrs.get(POPULATION, ""), []).append((number, trial))
        for place, some in places.items():
            with ExitStack() as stack:
                if place and (found := self._cut_off(place, some, stack)):
                    self._population(found, self.out / "populations" / place)
                    continue
            for alike in self._alike(some):
                replicas = [one for candidate in alike for one in candidate.replicas]
                place = f"{alike[0].number:05}-{population_name(replicas)[:8]}"
                folder = self.out / "populations" / place
                with only_process_in(folder):
                    content = [[c.number, [asdict(one) for one in c.replicas]] for c in alike]
                    write_json(folder / "plan.json", content)
                    for candidate in alike:
                        assert candidate.trial is not None
                        candidate.trial.set_user_attr(POPULATION, place)
                    self._population(alike, folder)

    def _cut_off(
        self, place: str, taken: Sequence[tuple[int, Trial]], stack: ExitStack
    ) -> list[_Candidate] | None:
        """A population as it was when its worker died, if that was on this machine."""
        folder = self.out / "populations" / Path(place).name
        try:
            stored = read_json(folder / "plan.json")
            stack.enter_context(only_process_in(folder))
            trials = dict(taken)
            kind = self.plan.task.settings
            found = [
                _Candidate(number, [from_dict(kind, one) for one in replicas], trials.get(number))
                for number, replicas in stored
            ]
        except (OSError, ValueError, TypeError):  # it is not there, or damaged, or in use
            return None
        return found if trials.keys() <= {one.number for one in found} else None

    def _alike(self, taken: Sequence[tuple[int, Trial]]) -> list[list[_Candidate]]:
        """What trials ask for; those of one structure together."""
        groups: dict[Settings, list[_Candidate]] = {}
        for number, trial in taken:
            try:
                chosen = self.plan.fit(settings_with(self.plan.settings, trial.params))
                seeds = range(chosen.seed, chosen.seed + self.plan.seeds)
                replicas = [settings_with(chosen, {"seed": seed}) for seed in seeds]
            except ValueError as error:  # values that are fine, but not together
                self._refuse([trial], str(error))
                continue
            structure = chosen.structure()
            groups.setdefault(structure, []).append(_Candidate(number, replicas, trial))
        return list(groups.values())

    def _refuse(self, trials: Sequence[Trial], reason: str) -> None:
        """Trials that cannot be trained are finished, without a value."""
        for trial in trials:
            self.say(f"Trial {trial.number} is impossible: {reason}")
            trial.set_user_attr("impossible", reason)
            self.study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)

    def _population(self, candidates: list[_Candidate], folder: Path) -> None:
        numbers = ", ".join(str(one.number) for one in candidates if one.trial)
        replicas = [one for candidate in candidates for one in candidate.replicas]
        self.say(f"Trials {numbers} of {self.plan.trials}, {_as_population(len(replicas))}.")
        checkpoint = folder / "checkpoint.pt"
        try:
            data = self._data(replicas[0])
            while True:
                execution = self.plan.task.execution(replicas[0])
                following = _Following(self.study, candidates, execution, self.callbacks(replicas))
                try:
                    outcome = train(
                        self.plan.task,
                        replicas,
                        data,
                        device=self.device,
                        save_to=checkpoint,
                        resume=True,
                        callbacks=following.callbacks(),
                    )
                    break
                except CheckpointError:
                    if following.last >= 0:  # trained since: one that cannot be written
                        raise
                    checkpoint.unlink()
        except ValueError as error:
            if replicas[0].structure() == self.base.structure():
                raise
            self._refuse([one.trial for one in candidates if one.trial], str(error))
            shutil.rmtree(folder, ignore_errors=True)
            return
        self._keep(candidates, outcome, data)
        shutil.rmtree(folder, ignore_errors=True)

    def _keep(self, candidates: Sequence[_Candidate], outcome: Outcome, data: Data) -> None:
        """Records first: what the study says is finished has them."""
        records = iter(make_records(self.plan.task, outcome, data))
        for candidate in candidates:
            for replica in candidate.replicas:
                record = next(records)
                if not candidate.elsewhere:
                    write_record(self.out / record_of(candidate.number, replica.seed), record)
        for candidate in candidates:
            if candidate.trial is None:
                continue
            if (value := candidate.value) is None:
                self.study.tell(candidate.trial, state=TrialState.PRUNED, skip_if_finished=True)
            else:
                self.study.tell(candidate.trial, value, skip_if_finished=True)
                self.say(f"Trial {candidate.number}: {value:.4f}")


class _Following:
    """Tells the study how a population goes, and prunes what the study's pruner wants pruned."""

    def __init__(
        self,
        study: optuna.Study,
        candidates: Sequence[_Candidate],
        execution: Execution,
        shown: Callbacks,
    ) -> None:
        self.study, self.candidates, self.shown = study, candidates, shown
        self.execution = execution
        self.evaluated = 0
        self.last = -1  # the last step
        for candidate in candidates:
            candidate.best = [-math.inf] * len(candidate.replicas)

    def callbacks(self) -> Callbacks:
        return Callbacks(self.progress, self.evaluation, self.shown.stopped, self.resumed)

    def progress(self, step: int, steps: int) -> None:
        self.last = steps
        self.shown.progress(step, steps)

    def resumed(self, evaluations: Sequence[Evaluation]) -> None:
        for one in evaluations:
            self._report(one)
        self.shown.resumed(evaluations)

    def evaluation(self, new: Evaluation) -> list[int]:
        self._report(new)
        if new.step < self.last:
            for candidate in self.candidates:
                self._prune(candidate)
        self.shown.evaluation(new)
        return self._without_trial()

    def _report(self, new: Evaluation) -> None:
        """All values first, so that a pruner sees all of them."""
        self.evaluated += 1
        values = iter(_monitored(new, self.execution))
        for candidate in self.candidates:
            own = [next(values) for _ in candidate.replicas]
            candidate.best = [
                best if value is None or math.isnan(value) else max(best, value)
                for best, value in zip(candidate.best, own, strict=True)
            ]
            if candidate.trial is None or (value := candidate.value) is None:
                continue
            try:
                candidate.trial.report(value, self.evaluated)
            except UpdateFinishedTrialError:
                candidate.trial, candidate.elsewhere = None, True

    def _prune(self, candidate: _Candidate) -> None:
        if candidate.trial is None:
            return
        if candidate.value is None or candidate.trial.should_prune():
            found = self.study.tell(candidate.trial, state=TrialState.PRUNED, skip_if_finished=True)
            candidate.elsewhere = found.state != TrialState.PRUNED
            candidate.trial = None

    def _without_trial(self) -> list[int]:
        """The replicas of what is finished."""
        own = [one for one in self.candidates for _ in one.replicas]
        return [index for index, candidate in enumerate(own) if candidate.trial is None]


def _monitored(new: Evaluation, execution: Execution) -> list[float | None]:
    """What weights are selected by, of each replica."""
    known = {
        metric.decoder: values
        for metric, values in new.metrics.items()
        if (metric.name, metric.set) == (execution.monitor, "validation")
    }
    return known.get(execution.monitor_decoder) or known["argmax"]


def record_of(number: int, seed: int) -> Path:
    """Where the record of a replica of a trial is, in the folder of the search."""
    return Path("records") / f"trial-{number:04}_seed-{seed}.json"


def _as_population(replicas: int) -> str:
    return "1 replica" if replicas == 1 else f"{replicas} replicas as one population"
