"""Performing jobs: only what has no record yet is trained, alike replicas as one population."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch

from .files import only_process_in, read_json, write_json
from .jobs import Job, finished_record
from .loop import Callbacks, train
from .models import save_model
from .outcome import Outcome
from .provenance import code_version
from .ranks import ONE_RANK, Ranks
from .records import (
    Curve,
    PopulationInfo,
    Probes,
    Record,
    Selection,
    write_probes,
    write_record,
)
from .settings import Settings, from_dict, populations
from .step import bytes_per_replica
from .task import AnyTask, Data, fingerprint_of

_SHARE_OF_MEMORY = 0.5  # the rest is for evaluation, gradients and everyone else


def perform(
    task: AnyTask,
    jobs: Sequence[Job],
    work: Path,
    *,
    device: torch.device | str = "cpu",
    data_dir: Path | None = None,
    at_once: int | None = None,
    callbacks: Callable[[Sequence[Settings]], Callbacks] | None = None,
    ranks: Ranks = ONE_RANK,
) -> Iterator[Outcome]:
    """Train the jobs that have no record yet: those alike in structure together, as many as fit.

    The folder ``work`` holds the plan, that is which replicas form a population, and a checkpoint
    for each population; what was cut off goes on from there. It is removed at the end, and no two
    processes may work in it at a time. Jobs of equal settings are trained once.

    Several ranks divide each population among them. Rank 0 plans, writes all files, and has the
    whole outcome. Where they divide a codebook, a population is one model.
    """
    if ranks.of_codebook.group is not None and at_once is None:
        at_once = 1
    device = torch.device(device)
    settings = json.dumps([asdict(job.settings) for job in jobs])
    ranks.check_alike(
        {"code": code_version(), "torch": torch.__version__, "settings": fingerprint_of(settings)}
    )
    with ExitStack() as stack:
        ranks.by_main(lambda: stack.enter_context(only_process_in(work)))
        plan = partial(_plan, task, jobs, work / "plan.json", device, data_dir, at_once, ranks)
        for population in ranks.by_main(plan):
            data = ranks.main_first(partial(task.data, population[0], data_dir))
            ranks.check_alike({"data": data.fingerprint})
            outcome = train(
                task,
                population,
                data,
                device=device,
                save_to=work / f"{population_name(population)}.pt",
                resume=True,
                callbacks=callbacks(population) if callbacks and ranks.is_main else None,
                ranks=ranks,
            )
            ranks.by_main(partial(_keep_all, task, jobs, outcome, data))
            yield outcome
        ranks.by_main(partial(shutil.rmtree, work, ignore_errors=True))


def _keep_all(task: AnyTask, jobs: Sequence[Job], outcome: Outcome, data: Data) -> None:
    """The files of a population, as far as they are missing."""
    for index, record in enumerate(make_records(task, outcome, data)):
        for job in jobs:
            if job.settings == outcome.replicas[index] and finished_record(job) is None:
                _keep(task, job, outcome, index, record)


def _keep(task: AnyTask, job: Job, outcome: Outcome, index: int, record: Record) -> None:
    """The files of a job; its record is the last, for it says that the job is finished."""
    if job.model is not None:
        model, score = outcome.model(index), outcome.score(index)
        save_model(job.model, task, job.settings, model, score, record.calibration)
    if job.probes and (probes := probes_of(outcome, index)):
        write_probes(job.record, probes if job.categories else without_categories(probes))
    write_record(job.record, record)


def make_records(task: AnyTask, outcome: Outcome, data: Data) -> list[Record]:
    """One record per replica of a population, bad ones included."""
    steps = [evaluation.step for evaluation in outcome.curve]
    measured = list(outcome.curve[0].metrics) if outcome.curve else []
    code = code_version()
    population = PopulationInfo(population_name(outcome.replicas), len(outcome.replicas))
    return [
        Record(
            task=task.name,
            settings=asdict(settings),
            code=code,
            data=data.fingerprint,
            hardware=outcome.hardware,
            torch=torch.__version__,
            seconds=round(outcome.seconds, 1),
            steps=outcome.steps,
            parameters=outcome.population.num_parameters,
            population=population,
            selection=Selection(outcome.selected_by, outcome.best_step[index]),
            stopped_at=outcome.stopped_at[index],
            curve=Curve(
                steps,
                [evaluation.loss[index] for evaluation in outcome.curve],
                {m: [one.metrics[m][index] for one in outcome.curve] for m in measured},
            ),
            calibration=outcome.calibration[index],
            metrics=outcome.metrics[index],
        )
        for index, settings in enumerate(outcome.replicas)
    ]


def probes_of(outcome: Outcome, index: int) -> Probes:
    """What the probe read of one replica, by step."""
    return {
        evaluation.step: readings
        for evaluation in outcome.curve
        if evaluation.probes and (readings := evaluation.probes[index]) is not None
    }


def without_categories(probes: Probes) -> Probes:
    """The same without what was read of each category, which is most of it."""
    return {
        step: [{**reading, "by_category": None} for reading in readings]
        for step, readings in probes.items()
    }


def population_name(replicas: Sequence[Settings]) -> str:
    return fingerprint_of(json.dumps([asdict(replica) for replica in replicas]))


def _plan(
    task: AnyTask,
    jobs: Sequence[Job],
    path: Path,
    device: torch.device,
    data_dir: Path | None,
    at_once: int | None,
    ranks: Ranks,
) -> list[list[Settings]]:
    """The populations still to train: those of an earlier plan, then what it does not cover.

    An earlier plan is kept because the random numbers of a population depend on all its replicas.
    """
    missing = {job.settings for job in jobs if finished_record(job) is None}
    wanted = {job.settings for job in jobs}
    planned: list[list[Settings]] = []
    covered: set[Settings] = set()
    for population in _read_plan(task, path):
        fits = missing.intersection(population) and wanted.issuperset(population)
        if fits and covered.isdisjoint(population) and len(set(population)) == len(population):
            planned.append(population)
            covered.update(population)
    rest = list(dict.fromkeys(j.settings for j in jobs if j.settings in missing - covered))
    for alike in populations(rest):
        room = at_once or _room(task, alike[0], device, data_dir, ranks)
        planned += [alike[k : k + room] for k in range(0, len(alike), room)]
    if planned:
        write_json(path, [[asdict(s) for s in population] for population in planned])
    return planned


def _read_plan(task: AnyTask, path: Path) -> list[list[Settings]]:
    if not path.exists():
        return []
    try:
        stored = read_json(path)
        return [[from_dict(task.settings, values) for values in group] for group in stored]
    except (OSError, ValueError, TypeError):
        # Damaged, or of another version of the task: its checkpoints are too.
        return []


def _room(
    task: AnyTask, settings: Settings, device: torch.device, data_dir: Path | None, ranks: Ranks
) -> int:
    """How many replicas all ranks have memory for, if it is the same on all machines.

    Unless replicas are divided, every rank has all of them. Ranks of one machine share its memory,
    but have GPUs of their own.
    """
    sharing = ranks.on_machine if device.type == "cpu" else 1
    fitting = _replicas_that_fit(task, settings, device, data_dir)
    return max(1, ranks.of_replicas.world * fitting // sharing)


def _replicas_that_fit(
    task: AnyTask, settings: Settings, device: torch.device, data_dir: Path | None
) -> int:
    """How many replicas the device has memory for."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
    elif "SC_AVPHYS_PAGES" in os.sysconf_names:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:  # as on a Mac
        free = 4 * 2**30
    needed = bytes_per_replica(task, settings, task.data(settings, data_dir))
    return max(1, int(_SHARE_OF_MEMORY * free / max(1, needed)))
