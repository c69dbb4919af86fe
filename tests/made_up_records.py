"""Records that say where each number comes from, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from dcgraph.experiments.engine.metrics import Metric, Metrics
from dcgraph.experiments.engine.records import (
    Curve,
    PopulationInfo,
    Probes,
    Record,
    Selection,
    write_probes,
    write_record,
)
from dcgraph.experiments.engine.tables import Run, Table, record_of

VALIDATION = Metric("accuracy", "validation")


def write_run(
    table: Table,
    run: Run,
    results: Path,
    curve: Callable[[int], Curve] = lambda seed: Curve(),
    metrics: Callable[[int], Metrics] = lambda seed: {},
    probes: Callable[[int], Probes] | None = None,
) -> None:
    """A record for each seed of a run; its curve, metrics and probes are functions of the seed."""
    for seed in range(run.seeds):
        seen = curve(seed)
        record = Record(
            task=table.task,
            settings=asdict(replace(run.settings, seed=seed)),
            code="",
            data="",
            hardware="",
            torch="",
            seconds=1.0,
            steps=max(seen.step, default=1),
            parameters=1,
            population=PopulationInfo("made up", run.seeds),
            selection=Selection(VALIDATION, max(seen.step, default=1)),
            stopped_at=None,
            curve=seen,
            calibration={},
            metrics=metrics(seed),
        )
        place = record_of(run, seed, table.task, results)
        write_record(place, record)
        if probes is not None:
            write_probes(place, probes(seed))
