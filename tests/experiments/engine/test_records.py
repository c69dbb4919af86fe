"""Records: what is written is read again, and what is damaged is named."""

from __future__ import annotations

import json
import lzma
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dcgraph.experiments.engine.errors import RecordError
from dcgraph.experiments.engine.metrics import Metric
from dcgraph.experiments.engine.records import (
    SCHEMA,
    Probes,
    probes_beside,
    read_probes,
    read_record,
    write_probes,
    write_record,
)
from made_up_records import RECORD, VALIDATION_MQ


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "seed-3.json"
    write_record(path, RECORD)
    assert read_record(path) == RECORD
    assert RECORD.seed == 3 and RECORD.steps_per_epoch == 10
    assert RECORD.score() == 0.75 and RECORD.when_selected(VALIDATION_MQ) == 0.75
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
        ('{"schema": "one"}', "is not a record"),
        ('{"schema": 1, "task": "paths"}', "damaged record"),
    ],
)
def test_a_file_that_is_no_record_is_named(content: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(content)
    with pytest.raises(RecordError, match=complaint) as error:
        read_record(path)
    assert "record.json" in str(error.value) and "delete it" in str(error.value)


@pytest.mark.parametrize("odd", ["0.5", [0.5], True])
def test_a_curve_holds_numbers(odd: object, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(path, RECORD)
    stored = json.loads(path.read_text())
    for values in (stored["curve"]["loss"], stored["curve"]["metrics"][0]["values"]):
        kept, values[0] = values[0], odd
        path.write_text(json.dumps(stored))
        with pytest.raises(RecordError, match=r"is a damaged record|no number of JSON"):
            read_record(path)
        values[0] = kept


@pytest.mark.parametrize("odd", [-1, 1e400, "3", None, True])
def test_steps_seed_and_epochs_are_whole_numbers(odd: object, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(path, RECORD)
    whole = json.loads(path.read_text())
    changes = [{**whole, "steps": odd}]
    for name in ("seed", "epochs"):
        changes.append({**whole, "settings": {**whole["settings"], name: odd}})
    for changed in changes:
        path.write_text(json.dumps(changed))
        with pytest.raises(RecordError, match=r"is a damaged record|no number of JSON"):
            read_record(path)


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        ({"schema": SCHEMA + 1}, "update dcgraph."),
        ({"schema": 0, "code": "0.0.9 (abc)"}, "read it with dcgraph 0.0.9 (abc)."),
        ({"schema": 0}, "read it with the dcgraph that made it."),
    ],
)
def test_a_record_of_another_schema_is_not_to_be_deleted(
    content: dict[str, Any], remedy: str, tmp_path: Path
) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(content))
    with pytest.raises(RecordError, match=f"schema {content['schema']}, but") as error:
        read_record(path)
    assert str(error.value).endswith(f"; {remedy}") and "delete" not in str(error.value)


def test_what_is_computed_with_is_kept_to_the_last_digit(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    third = {"inverse temperature": 1 / 3, "lost": math.nan}
    write_record(path, replace(RECORD, calibration=third, metrics={Metric("MQ"): 1 / 3}))
    found = read_record(path)
    assert found.settings["lr"] == 1 / 3001
    assert found.calibration == {"inverse temperature": 1 / 3, "lost": None}
    assert found.value(Metric("MQ")) == 0.333333, "measured numbers have six digits"


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
