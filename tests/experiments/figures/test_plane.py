"""The plane of beta and tau in a picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from dcgraph.experiments.engine.comparison import BETAS, PLANE, PLANE_TAUS, plane_run
from dcgraph.experiments.engine.errors import RecordError
from dcgraph.experiments.figures import plane
from dcgraph.experiments.figures.estimators import COMPARED
from made_up_records import write_run
from pictures import check_from_records


def test_every_point_is_in_its_place(tmp_path: Path) -> None:
    """One of the hard ones was not run, and nothing of the other tasks."""
    with pytest.raises(RecordError, match="dcgraph compare plane"):
        plane.compute(tmp_path)
    addition, _, paths = COMPARED
    for task in (addition, paths):
        comparison = COMPARED[task]
        for part, estimator in PLANE.items():
            for y, tau in enumerate(PLANE_TAUS):
                for x, beta in enumerate(BETAS):
                    if (part, y, x) == ("hard", 1, 2):
                        continue
                    run = plane_run(comparison.settings, estimator, tau, beta)
                    share = (part == "hard") / 2 + y / 20 + x / 200

                    def test(seed: int, share: float = share) -> dict[object, float]:
                        return {comparison.metric: share + (seed - 3) / 1000}  # noqa: B023

                    write_run(comparison.plane(), run, tmp_path, metrics=test)  # type: ignore[arg-type]
    numbers = check_from_records("plane", tmp_path, tmp_path)
    assert [task["task"] for task in numbers["tasks"]] == [addition, paths]
    for task in numbers["tasks"]:
        for part, rows in task["planes"].items():
            for y, row in enumerate(rows):
                for x, value in enumerate(row):
                    share = (part == "hard") / 2 + y / 20 + x / 200
                    missing = (part, y, x) == ("hard", 1, 2)
                    assert value == (None if missing else pytest.approx(share, abs=1e-4))
