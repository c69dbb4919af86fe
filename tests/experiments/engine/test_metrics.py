"""Metrics are data: they survive JSON, and screens show them as a grid."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

import pytest

from dcgraph.experiments.engine import metrics
from dcgraph.experiments.engine.metrics import (
    Decoder,
    Metric,
    Ties,
    from_fields,
    in_words,
    layout,
    measured_as,
    to_fields,
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


def test_a_changed_default_does_not_change_what_a_record_means(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Schema 1 says what an omitted field is worth; the class may think otherwise later."""

    @dataclass(frozen=True)
    class Changed(Metric):
        set: str = "validation"
        decoder: Decoder | None = "sample"
        bidirectional: bool = True
        length: int | None = 1
        ties: Ties = "optimistic"

    monkeypatch.setattr(metrics, "Metric", Changed)
    meant: dict[str, Any] = {
        "name": "MQ",
        "set": "test",
        "decoder": "argmax",
        "bidirectional": False,
        "length": None,
        "ties": "realistic",
    }
    assert vars(from_fields({"name": "MQ"})) == meant
    assert to_fields(Changed(**meant)) == {"name": "MQ"}
    assert to_fields(Changed("MQ")).keys() == meant.keys()
    assert {field.name for field in fields(Metric)} == meant.keys(), "a new one needs a new schema"


def test_all_fields_of_a_metric_are_in_its_words() -> None:
    assert len(set(map(in_words, METRICS))) == len(METRICS)
    assert measured_as(METRICS[2]) == "beam search, bidirectional, optimistic ties"
    with pytest.raises(ValueError, match="not a metric"):
        from_fields({"name": "MQ", "colour": "red"})


def test_metrics_are_laid_out_by_set_and_decoder() -> None:
    sets = [Metric("accuracy", s, d) for s in ("test", "d8") for d in ("argmax", "sample")]
    grid = layout([*sets, Metric("MQ", length=1), Metric("MQ")])
    assert grid.rows == ("accuracy", "d8: accuracy", "MQ", "MQ, length 1")
    assert grid.columns == ("argmax", "sample")
    assert grid.cells["d8: accuracy", "sample"] == sets[3]
    assert ("MQ", "sample") not in grid.cells
