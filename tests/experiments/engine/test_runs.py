"""Jobs: only what has no record is trained, and each gets its record."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from dcgraph.experiments.engine import (
    Callbacks,
    Interrupted,
    runs,
    train,
)
from dcgraph.experiments.engine.jobs import Job, differences, finished_record
from dcgraph.experiments.engine.ranks import Divided, Ranks
from dcgraph.experiments.engine.records import read_probes, read_record, write_record
from dcgraph.experiments.engine.runs import make_records, perform
from parity import ACCURACY, DATA, QUICK, TASK, THREE, ParitySettings


def test_records_hold_what_is_needed_to_repeat_and_believe(tmp_path: Path) -> None:
    outcome = train(TASK, THREE, DATA)
    records = make_records(TASK, outcome, DATA)
    path = tmp_path / "record.json"
    write_record(path, records[1])
    record = read_record(path)
    assert record.settings["lr"] == 1e-2 and record.seed == 1
    assert record.settings.keys() == asdict(QUICK).keys()
    assert record.population.size == 3 and record.data == "bits"
    assert record.population == records[0].population
    assert len(record.curve.step) == 4 and record.selection.metric == ACCURACY
    assert record.hardware and record.code and record.seconds > 0
    assert record.score() == outcome.score(1) == record.when_selected(ACCURACY)
    assert json.loads(path.read_text())["schema"] == 1


def jobs_in(folder: Path, replicas: list[ParitySettings]) -> list[Job]:
    return [
        Job(r, folder / f"{k}.json", folder / f"{k}.safetensors") for k, r in enumerate(replicas)
    ]


def test_only_what_is_missing_is_run(tmp_path: Path) -> None:
    replicas = [*THREE, replace(QUICK, width=4)]
    jobs = jobs_in(tmp_path, replicas)
    work = tmp_path / "work"
    sizes = [len(outcome.replicas) for outcome in perform(TASK, jobs, work)]
    assert sizes == [3, 1] and not work.exists()
    assert not list(perform(TASK, jobs, work))
    jobs[1].record.unlink()
    (outcome,) = perform(TASK, jobs, work)
    assert outcome.replicas == [THREE[1]]
    assert all(finished_record(job) for job in jobs)


def test_jobs_of_equal_settings_are_trained_once_and_each_gets_its_record(tmp_path: Path) -> None:
    """As two runs of different names whose settings are the same."""
    one, two = (jobs_in(tmp_path / name, THREE[:2]) for name in ("one", "two"))
    two = [replace(job, model=None, probes=False) for job in two]
    work = tmp_path / "work"
    (outcome,) = perform(TASK, [*one, *two], work)
    assert outcome.replicas == THREE[:2]
    for first, second in zip(one, two, strict=True):
        assert read_record(first.record) == read_record(second.record)
        assert first.model is not None and first.model.exists()
        assert read_probes(first.record) and not read_probes(second.record)
    assert not list((tmp_path / "two").glob("*.safetensors"))
    assert not list(perform(TASK, [*one, *two], work))
    two[1].record.unlink()
    before = one[1].record.read_bytes()
    (outcome,) = perform(TASK, [*one, *two], work)
    assert outcome.replicas == [THREE[1]] and finished_record(two[1])
    assert one[1].record.read_bytes() == before, "what has a record keeps it"


def test_a_drawn_setting_is_recognised_to_the_last_digit(tmp_path: Path) -> None:
    (job,) = jobs = jobs_in(tmp_path, [replace(QUICK, lr=1 / 3001, epochs=1)])
    assert len(list(perform(TASK, jobs, tmp_path / "work"))) == 1
    assert finished_record(job)


def test_a_population_is_split_when_memory_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr(runs, "bytes_per_replica", lambda *_: free // 5)  # half of it: two fit
    outcomes = perform(TASK, jobs_in(tmp_path, THREE), tmp_path / "work")
    assert [len(outcome.replicas) for outcome in outcomes] == [2, 1]


def test_a_cut_off_job_keeps_its_populations(tmp_path: Path) -> None:
    jobs = jobs_in(tmp_path / "cut", THREE)
    work = tmp_path / "cut" / "work"

    def interrupt(step: int, steps: int) -> None:
        if step >= 9:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        list(
            perform(TASK, jobs, work, at_once=2, callbacks=lambda _: Callbacks(progress=interrupt))
        )
    assert sorted(path.suffix for path in work.iterdir()) == [".json", ".pt"]
    list(perform(TASK, jobs, work, at_once=3))  # there would be room for all now
    whole = jobs_in(tmp_path / "whole", THREE)
    list(perform(TASK, whole, tmp_path / "whole" / "work", at_once=2))
    for one, two in zip(jobs, whole, strict=True):
        records = [read_record(job.record) for job in (one, two)]
        assert records[0].curve == records[1].curve
        assert records[0].population == records[1].population
        assert read_probes(one.record) == read_probes(two.record) != {}


@pytest.mark.parametrize(
    ("divided", "on_machine", "sizes"),
    [
        ("replicas", 1, [8, 1]),
        ("replicas", 2, [4, 4, 1]),  # two machines
        ("replicas", 4, [2, 2, 2, 2, 1]),
        ("batch", 1, [2, 2, 2, 2, 1]),  # every rank has all replicas
        ("batch", 4, [1] * 9),
    ],
)
def test_populations_have_room_in_the_memory_of_all_ranks(
    divided: Divided,
    on_machine: int,
    sizes: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "_replicas_that_fit", lambda *_: 2)
    ranks = Ranks(0, 4, 0, divided, on_machine)
    jobs = jobs_in(tmp_path, [replace(QUICK, seed=seed) for seed in range(9)])
    cpu = torch.device("cpu")
    planned = runs._plan(TASK, jobs, tmp_path / "plan.json", cpu, None, None, ranks)
    assert [len(population) for population in planned] == sizes


def test_a_record_of_other_settings_is_kept_and_named(tmp_path: Path) -> None:
    (job,) = jobs = jobs_in(tmp_path, [QUICK])
    list(perform(TASK, jobs, tmp_path / "work"))
    other = replace(job, settings=replace(QUICK, lr=0.5))
    record = finished_record(other)
    assert record is not None and differences(record, other.settings) == {"lr": (QUICK.lr, 0.5)}
    before = job.record.read_bytes()
    assert not list(perform(TASK, [other], tmp_path / "work"))
    assert job.record.read_bytes() == before
