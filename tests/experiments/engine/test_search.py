"""A search: trials as populations, pruning, workers that are killed, and what a study is about."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from dcgraph.experiments.engine import (
    Callbacks,
    Data,
    Evaluation,
    Interrupted,
    Settings,
    checkpoint,
)
from dcgraph.experiments.engine.errors import CheckpointError, StudyError
from dcgraph.experiments.engine.records import read_record
from dcgraph.experiments.engine.search import Search, search
from dcgraph.experiments.engine.settings import Sweep, parse_sweep
from dcgraph.experiments.engine.studies import Storage, latest, ranked, space_of
from parity import QUICK, TASK, Parity, ParitySettings
from postgres import server

FIXED = replace(QUICK, seed=5)
SWEEPS = [parse_sweep(text, FIXED) for text in ("lr=1e-3..1e-1:log", "tau=1,2", "dropres=0,1")]
PLAN = Search(task=TASK, settings=FIXED, sweeps=SWEEPS, trials=6, at_once=3)


@contextmanager
def storage_in(folder: Path, grace: int = 60) -> Iterator[Storage]:
    storage = Storage(f"sqlite:///{folder / 'study.db'}", grace)
    try:
        yield storage
    finally:
        storage.close()


def run(plan: Search, folder: Path, **more: Any) -> list[optuna.trial.FrozenTrial]:
    with storage_in(folder) as storage:
        return latest(search(plan, storage, "study", folder / "out", **more))


def records_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "out" / "records").iterdir())


def test_a_batch_is_one_population(tmp_path: Path) -> None:
    trained: list[Sequence[Settings]] = []
    said: list[str] = []

    def callbacks(replicas: Sequence[Settings]) -> Callbacks:
        trained.append(replicas)
        return Callbacks()

    trials = run(PLAN, tmp_path, callbacks=callbacks, say=said.append)
    assert [len(replicas) for replicas in trained] == [3, 3]
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 6
    for trial, settings in zip(trials, [one for some in trained for one in some], strict=True):
        record = read_record(tmp_path / f"out/records/trial-{trial.number:04}_seed-5.json")
        assert trial.value == pytest.approx(record.score()), "the best evaluation of validation"
        assert record.settings["lr"] == settings.lr == pytest.approx(trial.params["lr"])
        assert (settings.tau, settings.dropres) == (trial.params["tau"], trial.params["dropres"])
        assert record.population.size == 3 and record.selection.metric.set == "validation"
        assert list(trial.intermediate_values) == [1, 2, 3, 4]
        assert trial.intermediate_values[4] == trial.value
    assert len({trial.params["lr"] for trial in trials}) == 6
    assert not list((tmp_path / "out" / "populations").iterdir())
    assert said[0] == "Trials 0, 1, 2 of 6, 3 replicas as one population."
    assert run(PLAN, tmp_path, callbacks=callbacks) == trials and len(trained) == 2
    assert len(run(replace(PLAN, trials=7), tmp_path)) == 7, "a study can have more"


def test_a_search_repeats(tmp_path: Path) -> None:
    one, two = (run(PLAN, tmp_path / name) for name in ("a", "b"))
    assert [trial.params for trial in one] == [trial.params for trial in two]
    assert [trial.value for trial in one] == [trial.value for trial in two]
    drawn = run(replace(PLAN, settings=replace(FIXED, seed=6)), tmp_path / "c")
    assert one[0].params != drawn[0].params


def test_settings_of_other_structure_make_populations_of_their_own(tmp_path: Path) -> None:
    sizes: list[int] = []

    def callbacks(replicas: Sequence[ParitySettings]) -> Callbacks:
        assert len({one.width for one in replicas}) == 1
        sizes.append(len(replicas))
        return Callbacks()

    sweeps = [*SWEEPS, parse_sweep("width=4,8", FIXED)]
    plan = replace(PLAN, sweeps=sweeps, trials=5, at_once=5)
    trials = run(plan, tmp_path, callbacks=callbacks)
    widths = [trial.params["width"] for trial in trials]
    assert sorted(sizes) == sorted(widths.count(width) for width in (4, 8)) and min(sizes)


def test_the_value_of_several_seeds_is_their_mean(tmp_path: Path) -> None:
    trials = run(replace(PLAN, seeds=2, trials=2), tmp_path)
    for trial in trials:
        paths = [f"out/records/trial-{trial.number:04}_seed-{seed}.json" for seed in (5, 6)]
        scores = [read_record(tmp_path / path).score() for path in paths]
        assert trial.value == pytest.approx(sum(scores) / 2)


def test_a_median_pruner_stops_what_is_worse_than_before(tmp_path: Path) -> None:
    """Trials of a learning rate of nearly 0 after five that learn."""
    lrs = [0.02] * 6 + [1e-9] * 3
    sweeps = [Sweep("lr", low=1e-10, high=1.0, logarithmic=True)]
    settings = replace(FIXED, epochs=20, evaluations=1)
    plan = replace(PLAN, settings=settings, sweeps=sweeps, trials=9, at_once=6)
    with storage_in(tmp_path) as storage:
        # The study is made by a search that needs no trial; its trials are chosen here.
        search(replace(plan, trials=0), storage, "study", tmp_path / "out")
        study = storage.study("study")
        for lr in lrs[:6]:
            study.enqueue_trial({"lr": lr})
        search(replace(plan, trials=6), storage, "study", tmp_path / "out")
        for lr in lrs[6:]:
            study.enqueue_trial({"lr": lr})
        trials = latest(search(plan, storage, "study", tmp_path / "out"))
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 6 + ["PRUNED"] * 3
    for trial in trials[6:]:
        steps = len(trial.intermediate_values)
        assert steps < 20 and trial.value == trial.intermediate_values[steps]
        record = read_record(tmp_path / f"out/records/trial-{trial.number:04}_seed-5.json")
        assert record.stopped_at is None, "its loss was finite"
        (monitored,) = [v for m, v in record.curve.metrics.items() if m.decoder == "argmax"]
        assert len(monitored) == steps, "and its population has ended with it"
    assert ranked(trials)[0][1].params["lr"] == 0.02


@pytest.mark.parametrize(("pruner", "pruned"), [("halving", True), ("none", False)])
def test_pruners(pruner: Any, pruned: bool, tmp_path: Path) -> None:
    settings = replace(FIXED, epochs=8)
    plan = replace(PLAN, settings=settings, pruner=pruner, trials=8, at_once=8)
    states = [trial.state.name for trial in run(plan, tmp_path)]
    assert states.count("PRUNED") > 1 if pruned else states == ["COMPLETE"] * 8
    assert len(records_in(tmp_path)) == 8


def test_what_is_never_finite_is_finished_without_a_value(tmp_path: Path) -> None:
    sweeps = [Sweep("lr", (1e-3, 1e35))]
    plan = replace(PLAN, sweeps=sweeps, trials=8, at_once=8, sampler="random", pruner="none")
    trials = run(plan, tmp_path)
    for trial in trials:
        expected = "COMPLETE" if trial.params["lr"] < 1 else "PRUNED"
        assert trial.state.name == expected
        assert (trial.value is None) == (expected == "PRUNED")
    assert {trial.params["lr"] for trial in trials} == {1e-3, 1e35}


def test_settings_that_do_not_fit_together_are_finished_too(tmp_path: Path) -> None:
    said: list[str] = []
    sweeps = [Sweep("batch", (8, 1000))]  # of 64 training examples
    plan = replace(PLAN, sweeps=sweeps, sampler="random", trials=6, at_once=6)
    trials = run(plan, tmp_path, say=said.append)
    for trial in trials:
        assert ("impossible" in trial.user_attrs) == (trial.params["batch"] == 1000)
    assert any("batch=1000, but there are at most 64" in line for line in said)


def interrupting(at: int) -> Any:
    def callbacks(replicas: Sequence[Settings]) -> Callbacks:
        def stop(step: int, steps: int) -> None:
            if step >= at:
                os.kill(os.getpid(), signal.SIGINT)

        return Callbacks(progress=stop)

    return callbacks


def test_what_is_interrupted_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    whole = run(PLAN, tmp_path / "whole")
    brought: list[int] = []

    def callbacks(replicas: Sequence[Settings]) -> Callbacks:
        return Callbacks(resumed=lambda curve: brought.append(len(curve)))

    cut = tmp_path / "cut"
    with pytest.raises(Interrupted):
        run(PLAN, cut, callbacks=interrupting(10))
    trials = run(PLAN, cut, callbacks=callbacks)
    assert brought == [3], "the first population had three evaluations; the second was not begun"
    assert [trial.params for trial in trials[:3]] == [trial.params for trial in whole[:3]]
    assert [trial.value for trial in trials[:3]] == [trial.value for trial in whole[:3]]
    assert [list(trial.intermediate_values) for trial in trials] == [[1, 2, 3, 4]] * 6
    assert records_in(cut) == [f"trial-{k:04}_seed-5.json" for k in range(6)]


def test_elsewhere_what_was_cut_off_begins_again(tmp_path: Path) -> None:
    """Without the folder of the worker that had it."""
    with pytest.raises(Interrupted):
        run(PLAN, tmp_path, callbacks=interrupting(10))
    with storage_in(tmp_path) as storage:
        trials = latest(search(PLAN, storage, "study", tmp_path / "other"))
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 6
    assert len(list((tmp_path / "other" / "records").iterdir())) == 6


def test_a_damaged_checkpoint_costs_its_steps_only(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        run(PLAN, tmp_path, callbacks=interrupting(10))
    (checkpoint,) = (tmp_path / "out" / "populations").glob("*/checkpoint.pt")
    checkpoint.write_bytes(b"half")
    assert [trial.state.name for trial in run(PLAN, tmp_path)] == ["COMPLETE"] * 6


def test_a_worker_that_was_taken_for_dead_leaves_its_work_to_the_other(tmp_path: Path) -> None:
    """Its trials fail while it trains, as when its machine sleeps for an hour."""
    with storage_in(tmp_path) as storage:

        def callbacks(replicas: Sequence[Settings]) -> Callbacks:
            def taken_for_dead(new: Evaluation) -> None:
                study = storage.study("study")
                for trial in study.get_trials(states=(TrialState.RUNNING,)):
                    study.tell(trial.number, state=TrialState.FAIL)

            return Callbacks(evaluation=taken_for_dead if not seen else lambda new: None)

        seen: list[int] = []
        said: list[str] = []

        def say(line: str) -> None:
            said.append(line)
            seen.extend([1] if line.startswith("Trials") and len(said) > 1 else [])

        trials = latest(
            search(
                replace(PLAN, trials=3), storage, "study", tmp_path / "out",
                callbacks=callbacks, say=say,
            )
        )  # fmt: skip
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 3
    assert len(records_in(tmp_path)) == 3


def test_a_study_with_other_terms_is_refused(tmp_path: Path) -> None:
    run(replace(PLAN, trials=1), tmp_path)
    for other, words in (
        (replace(PLAN, settings=replace(FIXED, epochs=3)), "settings epochs: 2, now 3"),
        (replace(PLAN, sweeps=SWEEPS[:2]), "space dropres"),
        (replace(PLAN, seeds=2), "seeds: 1, now 2"),
        (replace(PLAN, pruner="none"), "pruner: median, now none"),
    ):
        with pytest.raises(StudyError, match=words):
            run(other, tmp_path)
    with storage_in(tmp_path) as storage:
        optuna.create_study(study_name="foreign", storage=storage.rdb).enqueue_trial({})
        with pytest.raises(StudyError, match="of another program"):
            search(PLAN, storage, "foreign", tmp_path / "x")
        with pytest.raises(StudyError, match="records of another study"):
            search(PLAN, storage, "new", tmp_path / "out")


class OnlyTest(Parity):
    def data(self, settings: ParitySettings, data_dir: Path | None = None) -> Data:
        return super().data(settings).only("train", "test")


def test_the_test_split_is_never_searched_by(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no validation split"):
        run(replace(PLAN, task=OnlyTest()), tmp_path)


def test_a_space_has_the_distributions_of_optuna() -> None:
    texts = ["lr=1e-4..1e-2:log", "tau=1..2", "beta_share=0..0.8:0.1", "width=4..9", "epochs=1,5"]
    texts += ["batch=8..32:8", "dropres=0,1", "schedule_steps=1..64:log", "alpha_step=1e-3..1:x10"]
    with pytest.raises(ValueError, match=r"beta_share=0\.0, but a share"):
        space_of([parse_sweep(text, FIXED) for text in texts], FIXED)
    texts = [text.replace("=0..0.8", "=0.1..0.8") for text in texts]
    space = space_of([parse_sweep(text, FIXED) for text in texts], FIXED)
    d = optuna.distributions
    assert space == {
        "lr": d.FloatDistribution(1e-4, 1e-2, log=True),
        "tau": d.FloatDistribution(1.0, 2.0),
        "beta_share": d.FloatDistribution(0.1, 0.8, step=0.1),
        "width": d.IntDistribution(4, 9),
        "epochs": d.CategoricalDistribution([1, 5]),
        "batch": d.IntDistribution(8, 32, step=8),
        "dropres": d.CategoricalDistribution([False, True]),
        "schedule_steps": d.IntDistribution(1, 64, log=True),
        "alpha_step": d.CategoricalDistribution([0.001, 0.01, 0.1, 1.0]),
    }
    for wrong, words in (([], "nothing to search"), (["tau=1,2", "tau=1..3"], "swept twice")):
        with pytest.raises(ValueError, match=words):
            space_of([parse_sweep(text, FIXED) for text in wrong], FIXED)


def test_a_study_knows_its_plan_as_plain_values(tmp_path: Path) -> None:
    run(replace(PLAN, trials=1), tmp_path)
    with storage_in(tmp_path) as storage:
        about = storage.study("study").user_attrs["dcgraph"]
    assert about["task"] == "parity" and about["metric"] == "accuracy"
    assert about["settings"]["epochs"] == 2 and "lr" not in about["settings"]
    assert json.loads(about["space"]["lr"])["attributes"]["log"] is True


def test_what_a_worker_took_that_was_killed_before_it_began_is_taken_again(tmp_path: Path) -> None:
    """In the middle of its turn: one trial has its parameters, one has none, no heart beats."""
    with storage_in(tmp_path) as storage:
        search(replace(PLAN, trials=0), storage, "study", tmp_path / "out")
        plain = optuna.load_study(study_name="study", storage=storage.name)
        plain.ask(space_of(SWEEPS, FIXED))
        plain.ask()
        trials = latest(search(PLAN, storage, "study", tmp_path / "out"))
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 6
    assert all(set(trial.params) == {"lr", "tau", "dropres"} for trial in trials)
    assert len(records_in(tmp_path)) == 6


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_workers_take_turns(database: str, tmp_path: Path) -> None:
    came: list[str] = []
    with ExitStack() as stack:
        file = f"sqlite:///{tmp_path / 'study.db'}"
        url = file if database == "sqlite" else stack.enter_context(server()).url
        one, two = (stack.enter_context(closing(Storage(url, 60))) for _ in range(2))

        def other() -> None:
            with two.turn():
                came.append("other")

        thread = threading.Thread(target=other)
        with one.turn():
            thread.start()
            time.sleep(0.5)
            came.append("first")
        thread.join(20)
    assert came == ["first", "other"]


def test_a_server_that_stops_is_one_line_and_the_search_goes_on_when_it_is_back(
    tmp_path: Path,
) -> None:
    brought: list[int] = []
    with server() as database:

        def stopping(replicas: Sequence[Settings]) -> Callbacks:
            def progress(step: int, steps: int) -> None:
                if step == 8:
                    database.stop()

            return Callbacks(progress=progress)

        def resumed(replicas: Sequence[Settings]) -> Callbacks:
            return Callbacks(resumed=lambda curve: brought.append(len(curve)))

        plan = replace(PLAN, trials=3)
        storage = Storage(database.url, 4)
        with pytest.raises(StudyError, match="does not answer") as error:
            search(plan, storage, "study", tmp_path, callbacks=stopping)
        storage.close()
        assert "secret" not in str(error.value)
        database.start()
        storage = Storage(database.url, 4)
        trials = latest(search(plan, storage, "study", tmp_path, callbacks=resumed))
        storage.close()
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 3
    assert brought and [len(trial.intermediate_values) for trial in trials] == [4] * 3


def test_a_disk_that_is_full_is_said_and_what_was_saved_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopping(replicas: Sequence[Settings]) -> Callbacks:
        return Callbacks(progress=lambda step, steps: os.kill(os.getpid(), signal.SIGTERM))

    def full(path: Path, content: object) -> None:
        raise OSError(errno.ENOSPC, "the disk is full", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "save_tensors", full)
        with pytest.raises(CheckpointError, match="the disk is full"):
            run(PLAN, tmp_path)
    with pytest.raises(Interrupted):
        run(PLAN, tmp_path, callbacks=stopping)
    (saved,) = tmp_path.glob("out/populations/*/checkpoint.pt")
    before = saved.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "save_tensors", full)
        with pytest.raises(CheckpointError, match="the disk is full"):
            run(PLAN, tmp_path)
    assert saved.read_bytes() == before
    assert len(run(PLAN, tmp_path)) == 6


def killed(url: str, folder: Path) -> dict[str, int]:
    """What is left of a study whose workers were killed, in a process of its own, which forks."""
    program = Path(__file__).parents[2] / "searched.py"
    run = subprocess.run(
        [sys.executable, str(program), url, str(folder), "3", "6"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    found: dict[str, int] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_nothing_is_lost_or_run_twice_when_workers_are_killed(
    database: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        file = f"sqlite:///{tmp_path / 'study.db'}"
        url = file if database == "sqlite" else stack.enter_context(server()).url
        found = killed(url, tmp_path)
    assert found["kills"] == 6 and found["failed"] == 0
    assert found["trials"] == found["finished"] == 16
    assert found["retried"] > 2
    assert found["lost"] == found["finished_twice"] == found["retried_twice"] == 0
    # A trial that was pruned before its worker was killed may lack a record; its curve is there.
    assert found["records"] > 10
