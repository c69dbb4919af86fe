"""Path queries by their length: every number from the metric with its fields."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dcgraph.experiments.engine.errors import RecordError
from dcgraph.experiments.engine.metrics import Metric, Metrics
from dcgraph.experiments.engine.records import read_record, write_record
from dcgraph.experiments.engine.tables import record_of
from dcgraph.experiments.figures import lengths
from dcgraph.experiments.figures.runs import run_of
from made_up_records import write_run
from pictures import check_from_records

LENGTHS = (10, *range(1, 10))  # in an order that is not theirs


def value(run: int, seed: int, metric: Metric) -> float:
    """Digits that say which run, seed, metric and length a number is of."""
    decoder = {"argmax": 1, "beam": 2}[metric.decoder or ""] + 2 * metric.bidirectional
    return float(f"0.{run}{seed}{len(metric.name)}{decoder}{metric.length:02}")


def measured(run: int, seed: int) -> Metrics:
    metrics = [Metric("MRR"), Metric("H@10"), Metric("H@10", ties="optimistic")]
    metrics += [replace(metric, decoder="beam") for metric in metrics[:2]]
    metrics += [replace(metric, bidirectional=True) for metric in metrics]
    by_length = [replace(metric, length=length) for metric in metrics for length in LENGTHS]
    return {
        **dict.fromkeys(metrics, 0.99),  # of all lengths together: not drawn
        **{m: 0.98 if m.ties == "optimistic" else value(run, seed, m) for m in by_length},
    }


def write(graph: str, results: Path) -> list[str]:
    table, lines = lengths.GRAPHS[graph]
    names = list(dict.fromkeys(run for run, _ in lines.values()))
    for k, name in enumerate(names):
        write_run(
            table,
            run_of(table, name),
            results,
            metrics=lambda seed, k=k: measured(k, seed),  # type: ignore[misc]
        )
    return names


def test_numbers_are_those_of_the_records(tmp_path: Path) -> None:
    names = {graph: write(graph, tmp_path) for graph in lengths.GRAPHS}
    numbers = check_from_records("lengths", tmp_path, tmp_path / "out")
    assert list(numbers["graphs"]) == list(lengths.GRAPHS)
    for graph, groups in numbers["graphs"].items():
        table, lines = lengths.GRAPHS[graph]
        assert [group["name"] for group in groups] == list(lines)
        for group in groups:
            name, metric = lines[group["name"]]
            run = run_of(table, name)
            assert group["trained"] == run.settings.length  # type: ignore[attr-defined]
            expected = [
                [
                    value(names[graph].index(name), seed, replace(metric, length=length))
                    for length in range(1, 11)
                ]
                for seed in range(run.seeds)
            ]
            assert group["runs"] == expected
    assert len(numbers["the paper on FB15k-237"]) == 10


def test_lengths_of_the_graphs_that_have_records(tmp_path: Path) -> None:
    """Runs on a CPU are enough for a picture; what lacks a number is an error."""
    first, *_ = write("UMLS", tmp_path)
    assert list(check_from_records("lengths", tmp_path, tmp_path / "out")["graphs"]) == ["UMLS"]
    table, _ = lengths.GRAPHS["UMLS"]
    place = record_of(run_of(table, first), 0, table.task, tmp_path)
    record = read_record(place)
    by_argmax = {m: v for m, v in record.metrics.items() if m.decoder == "argmax"}
    write_record(place, replace(record, metrics=by_argmax))
    with pytest.raises(RecordError, match="'MRR, beam search' by length"):
        lengths.compute(tmp_path)
