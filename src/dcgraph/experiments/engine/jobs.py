"""Jobs: replicas whose records are wanted in files, and their names. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .records import Record, read_record
from .settings import Settings
from .tables import Row, Table, record_of


@dataclass(frozen=True)
class Job:
    """One replica, the file for its record and, if wanted, the one for its best weights."""

    settings: Settings
    record: Path
    model: Path | None = None
    probes: bool = True  # whether its probe curve is kept beside the record
    categories: bool = True  # and what the probe read of each category with it


def jobs_of(table: Table, row: Row, results: Path) -> list[Job]:
    """Every replica that a row needs. Rows that name the same run share its records."""
    return [
        Job(
            replace(run.settings, seed=seed),
            record_of(run, seed, table.task, results),
            probes=run.probes,
            categories=run.categories,
        )
        for run in row.runs
        for seed in range(run.seeds)
    ]


def finished_record(job: Job) -> Record | None:
    """The record of a job, if there is one; also one that was made with other settings."""
    return read_record(job.record) if job.record.exists() else None


def differences(record: Record, settings: Settings) -> dict[str, tuple[Any, Any]]:
    """Settings that a record was made with, where they are others now: then and now.

    A setting that is younger than the record is not counted.
    """
    now = asdict(settings)
    return {
        name: (then, now.get(name))
        for name, then in record.settings.items()
        if then != now.get(name)
    }


def label(settings: Settings, among: Sequence[Settings]) -> str:
    """A short name for settings among others: what they differ in, except the seed.

    Empty, where they differ in nothing else.
    """
    mine, others = asdict(settings), [asdict(other) for other in among]
    differing = [n for n in mine if n != "seed" and any(other[n] != mine[n] for other in others)]
    return "_".join(f"{name}-{_short(mine[name])}" for name in differing)


def replica_name(settings: Settings, among: Sequence[Settings]) -> str:
    """The same with the seed: a name for the files of one replica of a sweep."""
    return "_".join(filter(None, (label(settings, among), f"seed-{settings.seed}")))


def _short(value: object) -> str:
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)
