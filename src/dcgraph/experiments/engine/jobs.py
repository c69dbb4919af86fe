"""Jobs: replicas whose records are wanted in files, and their names. Nothing here imports torch."""

from __future__ import annotations

import hashlib
import re
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
    """Every replica that a row needs. Rows that name the same run share its records.

    What depends on a choice is among them once the choice can be made.
    """
    return [
        Job(
            replace(run.settings, seed=seed),
            record_of(run, seed, table.task, results),
            probes=run.probes,
            categories=run.categories,
        )
        for run in row.needed_runs(table.task, results)
        for seed in run.each_seed
    ]


def records_folder(results: Path | None) -> Path:
    """Where records are read: what is asked for, or ``results`` here, or those of dcgraph itself.

    The latter are in the package where it was installed from a wheel, else in its checkout.
    """
    here = Path("results")
    if results is not None or here.is_dir():
        return results or here
    return records_of_dcgraph() or here


def records_of_dcgraph() -> Path | None:
    """The published records: in a wheel's package, or else in the checkout."""
    return next((folder for folder in _OWN if folder.is_dir()), None)


_EXPERIMENTS = Path(__file__).resolve().parents[1]
_OWN = _EXPERIMENTS / "results", _EXPERIMENTS.parents[2] / "results"


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


def labels(replicas: Sequence[Settings], between: str = "_") -> list[str]:
    """A short name for each of some settings: what they differ in, except the seed.

    Empty, where they differ in nothing else. Several settings have ``between`` between them.
    """
    values = [asdict(replica) for replica in replicas]
    first = values[0] if values else {}
    differing = [
        name for name in first if name != "seed" and any(v[name] != first[name] for v in values)
    ]
    return [between.join(f"{name}-{_short(own[name])}" for name in differing) for own in values]


def replica_names(replicas: Sequence[Settings]) -> list[str]:
    """The same with the seed: a name for the files of each replica of a sweep."""
    return [
        file_name("_".join(filter(None, (label, f"seed-{replica.seed}"))))
        for label, replica in zip(labels(replicas), replicas, strict=True)
    ]


_LONGEST_NAME = 120  # of the 255 bytes that a file system allows, for endings have to fit too


def file_name(text: str) -> str:
    """A name of a file that leads nowhere else; other texts have other names.

    >>> file_name("lr-0.001_seed-0"), file_name("gate-x/../../etc_seed-0")
    ('lr-0.001_seed-0', 'gate-x-..-..-etc_seed-0-8bf1ac34')
    """
    plain = re.sub(r"[^\w.+=-]", "-", text, flags=re.ASCII).lstrip(".-")
    if plain and plain == text and len(plain) <= _LONGEST_NAME:
        return plain
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{plain[:_LONGEST_NAME]}-{digest}"


def _short(value: object) -> str:
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)
