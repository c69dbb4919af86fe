"""Long sums and learned carries in a picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from dcgraph.experiments.engine.errors import RecordError
from dcgraph.experiments.engine.metrics import Metric, Metrics
from dcgraph.experiments.figures import sums
from dcgraph.experiments.tasks.addition.chain_tables import CARRIES, LONG_SUMS
from dcgraph.experiments.tasks.addition.settings import LENGTHS
from made_up_records import write_run
from pictures import check_from_records


def test_every_seed_is_at_its_length(tmp_path: Path) -> None:
    """Of the sums only the first row was run, and numbers only with one length in training."""
    with pytest.raises(RecordError, match="addition-sums addition-carry"):
        sums.compute(tmp_path)

    def of_sums(seed: int) -> Metrics:
        return {Metric("accuracy"): 0.9 + seed / 1000, Metric("digit accuracy"): 0.99}

    def of_numbers(seed: int) -> Metrics:
        right = {Metric("accuracy", length=n): (0.9 + seed / 1000) / n for n in LENGTHS}
        return {Metric("digit accuracy"): 0.98, **right}

    write_run(LONG_SUMS, LONG_SUMS.rows[0].runs[0], tmp_path, metrics=of_sums)
    write_run(CARRIES, CARRIES.rows[0].runs[0], tmp_path, metrics=of_numbers)
    numbers = check_from_records("sums", tmp_path, tmp_path)
    (point,) = numbers["sums"]
    assert point["length"] == 3 and point["read"] == pytest.approx(0.99**3, abs=1e-4)
    assert point["seeds"] == [pytest.approx(0.9 + seed / 1000) for seed in range(8)]
    (curve,) = numbers["numbers"]
    assert curve["trained"] == 4
    assert [point["length"] for point in curve["points"]] == list(LENGTHS[:-1])
    for point in curve["points"]:
        assert point["read"] == pytest.approx(0.98 ** (2 * point["length"]), abs=1e-4)
        assert point["seeds"][7] == pytest.approx(0.907 / point["length"])
