"""Gradients of all rounds of ListOps, from what the probe read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dcgraph.experiments.engine.records import Curve
from dcgraph.experiments.figures.gradients import RUNS
from dcgraph.experiments.figures.runs import run_of
from dcgraph.experiments.tasks.listops.tables import ABLATION
from made_up_records import VALIDATION, write_run
from pictures import check_from_records


def readings(run: int, seed: int, look: int) -> list[dict[str, Any]]:
    """Of all places and of a node, which is not drawn; digits say run, seed, look and place."""
    names = ("round 4", "embedding", "round 1", "value", "round 2", "round 3")
    places = {"embedding": 0, **{f"round {k}": k for k in range(1, 5)}, "value": 9}
    return [
        {"name": name, "gradient": float(f"{run + 1}{seed}{look}{places[name]}")} for name in names
    ]


def test_gradients_of_all_rounds_come_from_the_probe(tmp_path: Path) -> None:
    for k, name in enumerate(RUNS.values()):
        run = run_of(ABLATION, name)
        assert run.probes, "else its probe curves would not be kept"
        write_run(
            ABLATION,
            run,
            tmp_path,
            lambda seed: Curve([100, 200], [0.0, 0.0], {VALIDATION: [0.0, 0.0]}),
            probes=lambda seed, k=k: {  # type: ignore[misc]
                100 * look: readings(k, seed, look) for look in (1, 2)
            },
        )
    numbers = check_from_records("gradients", tmp_path, tmp_path / "out")
    assert numbers["closed"] == 50  # epochs of ten schedule steps of 0.002
    assert [group["name"] for group in numbers["groups"]] == list(RUNS)
    for k, group in enumerate(numbers["groups"]):
        for seed, run_shown in enumerate(group["runs"]):
            assert (run_shown["seed"], run_shown["epochs"]) == (seed, [50.0, 100.0])
            places = [[f"{k + 1}{seed}{look}{place}" for place in range(5)] for look in (1, 2)]
            assert [[f"{v:.0f}" for v in look] for look in run_shown["gradients"]] == places
