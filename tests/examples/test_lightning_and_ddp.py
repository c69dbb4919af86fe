"""The same chain in Lightning and on two ranks."""

from __future__ import annotations

import pytest

from lightning_and_ddp import WAYS, run, table


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_each_trainer_and_way_has_a_row_and_every_seed_a_number() -> None:
    lines: list[str] = []
    found = run(quick=True, report=lines.append)
    assert [row["way"] for row in found["rows"]] == [*WAYS, *WAYS]
    assert {row["trainer"] for row in found["rows"]} == {"Lightning", "DDP, 2 ranks"}
    for row in found["rows"]:
        assert len(row["accuracy"]) == found["seeds"]
        assert all(0 <= value <= 1 for value in row["accuracy"])
    assert len(table(found).splitlines()) == 8 and lines
