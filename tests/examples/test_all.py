"""Every example is a page of code that runs, and what it returns can be recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from record import HERE, names


@pytest.mark.parametrize("name", names())
def test_an_example_is_a_page_that_explains_itself(name: str) -> None:
    path = HERE / f"{name}.py"
    lines = path.read_text().splitlines()
    assert len(lines) <= 150
    assert any(line.startswith(f"    python examples/{name}.py ") for line in lines)
    helped = subprocess.run(
        [sys.executable, str(path), "--help"], capture_output=True, text=True, check=True
    )
    assert "--quick" in helped.stdout


def test_records_are_of_examples() -> None:
    results = HERE.parent / "results" / "examples"
    recorded = {path.stem: json.loads(path.read_text()) for path in results.glob("*.json")}
    assert set(recorded) <= set(names())
    for name, record in recorded.items():
        assert record["example"] == name and "+changes" not in record["code"]


def test_a_name_that_is_none_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import record

    monkeypatch.setattr(sys, "argv", ["record.py", "sweeep"])
    with pytest.raises(SystemExit):
        record.main()
    assert "there is no example sweeep" in capsys.readouterr().err
    assert Path(record.__file__).parent == HERE
