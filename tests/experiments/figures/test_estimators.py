"""The comparison of estimators in a picture: fresh seeds at the tau that validation chose."""

from __future__ import annotations

from pathlib import Path

import pytest

from dcgraph.experiments.engine.comparison import ESTIMATORS, METHODS, Comparison
from dcgraph.experiments.engine.errors import RecordError
from dcgraph.experiments.engine.metrics import Metric
from dcgraph.experiments.engine.records import Curve
from dcgraph.experiments.figures import estimators
from dcgraph.experiments.figures.estimators import COMPARED
from made_up_records import VALIDATION, write_run
from pictures import check_from_records


def write(task: str, comparison: Comparison, name: str, results: Path) -> None:
    """The second tau is better on validation; the test says tau, method and seed."""
    table = comparison.estimators()
    (row,) = (row for row in table.rows if row.name == name)
    for method, choice in enumerate(row.choices):
        for runs in (choice.tried, choice.fresh_runs()):
            for tau, run in enumerate(runs):

                def curve(seed: int, tau: int = tau) -> Curve:
                    return Curve([1], [0.5], {VALIDATION: [0.1 + tau / 10]})

                def test(seed: int, tau: int = tau, method: int = method) -> dict[Metric, float]:
                    return {comparison.metric: tau / 2 + method / 10 + seed / 100}

                write_run(table, run, results, curve, test)  # type: ignore[arg-type]


def test_it_has_what_validation_chose(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="dcgraph compare"):
        estimators.compute(tmp_path)
    addition, listops, _ = COMPARED
    names = [row.name for row in COMPARED[addition].estimators().rows]
    assert set(names) < set(ESTIMATORS)
    for name in names:
        write(addition, COMPARED[addition], name, tmp_path)
    write(listops, COMPARED[listops], ESTIMATORS[0], tmp_path)
    numbers = check_from_records("estimators", tmp_path, tmp_path)
    first, second = numbers["tasks"]
    assert (first["task"], second["task"]) == (addition, listops), "paths have no records"
    assert list(first["estimators"]) == names
    assert list(second["estimators"]) == [ESTIMATORS[0]]
    for task in (first, second):
        for of_method in task["estimators"].values():
            assert list(of_method) == list(METHODS)
            for method, runs in enumerate(of_method.values()):
                assert runs == pytest.approx([0.5 + method / 10 + s / 100 for s in (2, 3, 4, 5)])
