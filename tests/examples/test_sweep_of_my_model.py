"""The sweep: as many models as settings, each with its own start and dials."""

from __future__ import annotations

from sweep_of_my_model import SCALES, TAUS, run


def test_every_setting_has_a_row_and_every_seed_a_number() -> None:
    lines: list[str] = []
    found = run(quick=True, report=lines.append)
    assert found["models"] == len(SCALES) * len(TAUS) * found["seeds"]
    assert [(row["codebook"], row["tau"]) for row in found["rows"]] == [
        (scale, tau) for scale in SCALES for tau in TAUS
    ]
    for row in found["rows"]:
        assert len(row["accuracy"]) == found["seeds"]
        assert all(0 <= value <= 1 for value in row["accuracy"])
    assert found["ms_per_step"] > 0 and lines
