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
VALIDATION_MQ = Metric("MQ", "validation")

RECORD = Record(
    task="paths",
    settings={"seed": 3, "lr": 1 / 3001, "epochs": 2},
    code="0.1.0",
    data="0123",
    hardware="2 CPU threads",
    torch="2.13",
    seconds=1.5,
    steps=20,
    parameters=7,
    population=PopulationInfo("ab", 2),
    selection=Selection(VALIDATION_MQ, 20),
    stopped_at=None,
    curve=Curve([10, 20], [0.5, None], {VALIDATION_MQ: [0.25, 0.75]}),
    calibration={"inverse temperature": 2.0},
    metrics={Metric("MQ"): 0.5, Metric("MQ", decoder="beam", bidirectional=True, length=2): None},
)


def write_run(
    table: Table,
    run: Run,
    results: Path,
    curve: Callable[[int], Curve] = lambda seed: Curve(),
    metrics: Callable[[int], Metrics] = lambda seed: {},
    probes: Callable[[int], Probes] | None = None,
) -> None:
    """A record for each seed of a run; its curve, metrics and probes are functions of the seed."""
    for seed in run.each_seed:
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
