"""Records that a figure needs and does not find."""

from __future__ import annotations

from pathlib import Path

import pytest

from dcgraph.experiments import cli


@pytest.mark.parametrize(
    ("name", "table"),
    [("annealing", "annealing"), ("gradients", "listops-ablation"), ("lengths", "paths-small")],
)
def test_a_missing_record_is_named_with_its_remedy(
    name: str, table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = ["figure", name, "--results", str(tmp_path), "--out", str(tmp_path / "out")]
    assert cli.main(wanted) == 1
    assert f"dcgraph reproduce {table}" in capsys.readouterr().err
