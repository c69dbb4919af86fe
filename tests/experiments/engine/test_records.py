"""Records: what is written is read again, and what is damaged is named."""

from __future__ import annotations

import json
import lzma
import math
from dataclasses import replace
from pathlib import Path

import pytest

from dcgraph.experiments.engine.errors import RecordError
from dcgraph.experiments.engine.metrics import (
    Metric,
    arrange,
    from_fields,
    in_words,
    measured_as,
    to_fields,
)
from dcgraph.experiments.engine.records import (
    Curve,
    Population,
    Probes,
    Record,
    Selection,
    probes_beside,
    read_probes,
    read_record,
    write_probes,
    write_record,
)

VALIDATION = Metric("MQ", "validation")
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
    population=Population("ab", 2),
    selection=Selection(VALIDATION, 20),
    stopped_at=None,
    curve=Curve([10, 20], [0.5, None], {VALIDATION: [0.25, 0.75]}),
    calibration={"inverse temperature": 2.0},
    metrics={Metric("MQ"): 0.5, Metric("MQ", decoder="beam", bidirectional=True, length=2): None},
)
METRICS = (
    Metric("accuracy"),
    Metric("accuracy", "validation", "sample"),
    Metric("MQ", decoder="beam", bidirectional=True, length=3, ties="optimistic"),
    Metric("digits", decoder=None),
)


@pytest.mark.parametrize("metric", METRICS, ids=in_words)
def test_a_metric_survives_json(metric: Metric) -> None:
    assert from_fields(json.loads(json.dumps(to_fields(metric)))) == metric


def test_all_fields_of_a_metric_are_in_its_words() -> None:
    assert len(set(map(in_words, METRICS))) == len(METRICS)
    assert measured_as(METRICS[2]) == "beam search, bidirectional, optimistic ties"
    with pytest.raises(ValueError, match="not a metric"):
        from_fields({"name": "MQ", "colour": "red"})


def test_metrics_are_laid_out_by_set_and_decoder() -> None:
    sets = [Metric("accuracy", s, d) for s in ("test", "d8") for d in ("argmax", "sample")]
    grid = arrange([*sets, Metric("MQ", length=1), Metric("MQ")])
    assert grid.rows == ("accuracy", "d8: accuracy", "MQ", "MQ, length 1")
    assert grid.columns == ("argmax", "sample")
    assert grid.cells["d8: accuracy", "sample"] == sets[3]
    assert ("MQ", "sample") not in grid.cells


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "seed-3.json"
    write_record(path, RECORD)
    assert read_record(path) == RECORD
    assert RECORD.seed == 3 and RECORD.steps_per_epoch == 10
    assert RECORD.score() == 0.75 and RECORD.when_selected(VALIDATION) == 0.75
    assert RECORD.value(Metric("MQ")) == 0.5 and RECORD.value(Metric("MRR")) is None


def test_what_could_not_be_measured_is_null(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(path, replace(RECORD, metrics={Metric("MQ"): math.nan}))
    assert read_record(path).value(Metric("MQ")) is None


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "cannot read the record"),
        ("[]", "is not a record"),
        ('{"settings": {}}', "is not a record"),
        ('{"schema": 0}', "another version"),
        ('{"schema": 1, "task": "paths"}', "damaged record"),
    ],
)
def test_a_file_that_is_no_record_is_named(content: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(content)
    with pytest.raises(RecordError, match=complaint) as error:
        read_record(path)
    assert "record.json" in str(error.value) and "delete it" in str(error.value)


def test_probe_curves_stand_apart(tmp_path: Path) -> None:
    record = tmp_path / "seed-0.json"
    assert read_probes(record) == {}
    probes: Probes = {
        10: [{"name": "node", "gradient": 0.5}],
        20: [{"name": "node", "gradient": None}],
    }
    write_probes(record, probes)
    assert read_probes(record) == probes
    before = probes_beside(record).read_bytes()
    write_probes(record, probes)
    assert probes_beside(record).read_bytes() == before
    for damaged in (before[:10], b"", lzma.compress(b"[]")):
        probes_beside(record).write_bytes(damaged)
        with pytest.raises(RecordError, match=r"seed-0\.probes\.json\.xz"):
            read_probes(record)
