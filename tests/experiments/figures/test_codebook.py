"""How mix goes over a codebook, block by block."""

from __future__ import annotations

from pathlib import Path

import pytest

from dcgraph.experiments.figures import codebook
from pictures import check_figure, check_margin


def test_it_ends_where_the_whole_matrix_does() -> None:
    for seed in range(5):
        numbers = codebook.compute(seed)
        last = numbers["blocks"][-1]
        assert last["mixture"] == pytest.approx(numbers["whole"], abs=1e-5)
        assert last["top"] == max(a for block in numbers["blocks"] for a in block["a"])


def test_the_picture_is_made_of_the_seed_only(tmp_path: Path) -> None:
    check_margin(check_figure("codebook", codebook.compute, tmp_path))
