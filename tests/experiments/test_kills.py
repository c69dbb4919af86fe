"""Kills at every kind of moment, some of each; `make kills` sends more than a hundred."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import kills

PROGRAM = Path(kills.__file__)


def test_runs_that_were_killed_in_every_phase_leave_what_others_leave() -> None:
    """In a process of its own, which forks."""
    run = subprocess.run(
        [sys.executable, str(PROGRAM), "--kills", "18", "--quick"],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(run.stdout.splitlines()[-1])["subjects"]
    for subject in found.values():
        assert set(subject["kills"]) == set(kills.PHASES) and not subject["differing"]


def test_what_differs_by_a_bit_is_seen(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    record, model = tmp_path / "records" / "a.json", tmp_path / "records" / "a.safetensors"
    record.write_text(json.dumps({"seconds": 1.0, "steps": 3}))
    model.write_bytes(b"\1\2")
    before = kills.left_by(tmp_path)
    record.write_text(json.dumps({"seconds": 2.0, "steps": 3}))
    assert kills.left_by(tmp_path) == before
    model.write_bytes(b"\1\3")
    assert kills.left_by(tmp_path) != before
    model.unlink()
    assert kills.left_by(tmp_path) != before
