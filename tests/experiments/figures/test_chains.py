"""Gradient estimators on chains, from a record that is made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dcgraph.experiments import figures
from dcgraph.experiments.compare.chains_record import (
    METRICS,
    ChainSettings,
    empty_record,
    write_chains,
)
from dcgraph.experiments.engine.errors import RecordError
from dcgraph.experiments.figures.chains import FAMILIES
from pictures import check_from_records

NAMES = [name for names in FAMILIES.values() for name in names]
SETTINGS = ChainSettings()


def write_made_up(path: Path) -> None:
    """Digits of the cosine say estimator, categories and depth; one has no number at all."""
    record = empty_record(SETTINGS)
    for k, name in enumerate([*NAMES, "newer"]):
        for categories in SETTINGS.categories:
            for depth in SETTINGS.depths:
                for row in SETTINGS.rows(name, categories, depth):
                    values: dict[str, Any] = dict.fromkeys(METRICS, 0.1 * (k + 1))
                    values["cosine_50"] = 0.9 - 0.04 * k - 0.01 * depth * row["alpha"]
                    if row["steps"] == "keep":
                        values["cosine_50"] -= 0.1
                    if name == "relax":
                        values = dict.fromkeys(METRICS)
                    record["rows"].append({**row, **values, "run": 0})
    write_chains(path, record)


def test_cosines_of_all_estimators_come_from_the_record(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"has no compare/chains\.json; choose --results, or run"):
        figures.make("chains", tmp_path / "out", results=tmp_path)
    write_made_up(tmp_path / "compare" / "chains.json")
    numbers = check_from_records("chains", tmp_path, tmp_path / "out")
    assert list(numbers["families"]) == [*FAMILIES, "others"]
    assert numbers["families"]["others"] == ["newer"]
    assert [one for names in numbers["families"].values() for one in names] == [*NAMES, "newer"]
    what = {"estimator": "sparsemax", "steps": "permute", "categories": 10}
    off, on = (one for one in numbers["lines"] if what.items() <= one.items())
    assert (off["alpha"], on["alpha"]) == (1.0, 0.5)
    assert off["depth"] == on["depth"] == [1, 2, 4, 8, 16]
    assert off["cosine_50"] == pytest.approx([0.86 - 0.01 * depth for depth in off["depth"]])
    assert on["cosine_50"] == pytest.approx([0.85, 0.85, 0.84, 0.82, 0.78]), "the first has none"
    empty = next(one for one in numbers["lines"] if one["estimator"] == "relax")
    assert empty["bias"] == [None] * 5
    first = (tmp_path / "out" / "chains.png").read_bytes()
    check_from_records("chains-residual", tmp_path, tmp_path / "out")
    assert (tmp_path / "out" / "chains-residual.png").read_bytes() != first
    check_from_records("chains-errors", tmp_path, tmp_path / "out")
