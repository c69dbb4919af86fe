"""A category that is found late: which run and which category are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dcgraph.experiments.engine.errors import RecordError
from dcgraph.experiments.engine.records import Curve, probes_beside
from dcgraph.experiments.engine.tables import record_of
from dcgraph.experiments.figures import category
from dcgraph.experiments.figures.annealing import run_with
from dcgraph.experiments.tasks.addition.tables import ANNEALING
from made_up_records import VALIDATION, write_run
from pictures import check_from_records

LATEST, LOWEST = 5, 2  # the seeds that are to be shown


def curve(scheme: str, seed: int) -> Curve:
    """Of TempMatch seed 5 arrives last, at epoch 20; of base seed 2 ends lowest."""
    epochs = range(1, 31)
    if scheme == "base":
        accuracy = [0.2 if seed == LOWEST else 0.3] * 30
    else:
        accuracy = [0.95 if epoch >= (20 if seed == LATEST else 9) else 0.5 for epoch in epochs]
    return Curve([10 * epoch for epoch in epochs], [0.0] * 30, {VALIDATION: list(accuracy)})


def readings(seed: int) -> dict[int, list[dict[str, Any]]]:
    """Three categories: of those in use the second comes late; the last one is not in use."""
    weights = {10: [0.9, 0.0, 0.1], 150: [0.9, 0.05, 0.05], 300: [0.5, 0.5, 0.001]}
    return {
        step: [
            {
                "name": "symbol",
                "by_category": {
                    "weight": weight,
                    "gradient": [seed + 0.1 * step + w for w in weight],
                    "use": [0.5, 0.49, 0.01],
                },
            },
            {"name": "another node", "by_category": {}},
        ]
        for step, weight in weights.items()
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for scheme in ("TempMatch", "base"):
        run = run_with(2, dropres=False, scheme=scheme)
        assert run.probes, "else its probe curves would not be kept"
        write_run(
            ANNEALING,
            run,
            tmp_path,
            lambda seed, scheme=scheme: curve(scheme, seed),  # type: ignore[misc]
            probes=readings,
        )
    return tmp_path


def test_the_runs_and_categories_are_those_the_text_says(results: Path, tmp_path: Path) -> None:
    numbers = check_from_records("category", results, tmp_path / "out")
    matched, base = numbers["runs"]
    assert (matched["scheme"], matched["seed"], matched["category"]) == ("TempMatch", LATEST, 1)
    assert (base["scheme"], base["seed"], base["category"]) == ("base", LOWEST, 2)
    assert matched["in_use"] == [0, 1] and matched["probed"] == [1, 15, 30]
    assert matched["gradient"][0] == pytest.approx([6.9, 6.0, 6.1])
    assert base["epochs"] == list(range(1, 31)) and base["accuracy"][-1] == 0.2


def test_a_probe_curve_that_is_missing_is_named_with_its_remedy(results: Path) -> None:
    run = run_with(2, dropres=False, scheme="base")
    probes_beside(record_of(run, 3, "addition", results)).unlink()
    with pytest.raises(RecordError, match=r"lacks 1 of the 9 probe curves .*reproduce annealing"):
        category.compute(results)
