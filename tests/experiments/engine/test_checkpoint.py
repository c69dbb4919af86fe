"""Checkpoints: a run goes on bit for bit, survives being killed, never leaves half a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dcgraph.experiments.engine import (
    Callbacks,
    Interrupted,
    train,
)
from dcgraph.experiments.engine.checkpoint import load, save
from dcgraph.experiments.engine.errors import CheckpointError
from parity import DATA, TASK, THREE, same


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_every_signal_to_stop_saves_a_checkpoint(name: str, tmp_path: Path) -> None:
    number, handlers = getattr(signal, name), {}
    path = tmp_path / "run.pt"

    def stop(step: int, steps: int) -> None:
        signal.raise_signal(number)
        handlers[step] = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]

    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with pytest.raises(Interrupted) as caught:
        train(TASK, THREE, DATA, save_to=path, callbacks=Callbacks(progress=stop))
    assert caught.value.exit_code == 128 + number and path.exists()
    (seen,) = handlers.values()
    assert seen == [signal.default_int_handler, signal.SIG_DFL], "a second one ends at once"
    after = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert after == before


def test_a_signal_that_is_ignored_stays_so(tmp_path: Path) -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        hang_up = Callbacks(progress=lambda step, steps: signal.raise_signal(signal.SIGHUP))
        outcome = train(TASK, THREE, DATA, save_to=tmp_path / "run.pt", callbacks=hang_up)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert outcome.steps == outcome.curve[-1].step


@pytest.mark.parametrize("stop", [1, 5, 8, 13])
def test_an_interrupted_run_goes_on_bit_for_bit(stop: int, tmp_path: Path) -> None:
    whole = train(TASK, THREE, DATA)
    path = tmp_path / "run.pt"

    def interrupt(step: int, steps: int) -> None:
        if step >= stop:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        train(TASK, THREE, DATA, save_to=path, callbacks=Callbacks(progress=interrupt))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    torch.manual_seed(99)  # what else happened in between does not matter
    resumed = train(TASK, THREE, DATA, save_to=path, resume=True)
    assert same(whole, resumed)


def test_a_finished_run_can_be_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    whole = train(TASK, THREE, DATA, save_to=path)
    assert same(whole, train(TASK, THREE, DATA, save_to=path, resume=True))


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    train(TASK, THREE, DATA, save_to=path)
    with pytest.raises(CheckpointError, match="other settings"):
        train(TASK, THREE[:2], DATA, save_to=path, resume=True)
    other = replace(DATA, fingerprint="other")
    with pytest.raises(CheckpointError, match="other data"):
        train(TASK, THREE, other, save_to=path, resume=True)


def test_damaged_foreign_and_older_checkpoints_get_a_clear_error(tmp_path: Path) -> None:
    good = tmp_path / "good.pt"
    save(good, {"weights": torch.randn(1000)})
    whole = good.read_bytes()
    path = tmp_path / "bad.pt"
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match="not a whole dcgraph checkpoint"):
            load(path)
    path.write_text("hello")
    with pytest.raises(CheckpointError, match="not a whole"):
        load(path)
    torch.save({"weights": 1}, path)
    with pytest.raises(CheckpointError, match="not a dcgraph checkpoint"):
        load(path)
    torch.save({"format": "dcgraph checkpoint", "version": 0}, path)
    with pytest.raises(CheckpointError, match="version 0"):
        load(path)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        load(tmp_path / "missing.pt")


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("evil",)


def test_loading_never_runs_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"format": "dcgraph checkpoint", "version": 1, "x": Evil()}, "evil.pt")
    with pytest.raises(CheckpointError):
        load(Path("evil.pt"))
    assert not Path("evil").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    save(path, {"step": 1})
    with pytest.raises(Exception, match="pickle"):
        save(path, {"step": lambda: None})
    assert load(path)["step"] == 1
    assert list(tmp_path.iterdir()) == [path]


def test_killed_at_random_moments_nothing_is_lost(tmp_path: Path) -> None:
    """At least 20 times SIGKILL; the program forks, so that torch is imported once."""
    program = Path(__file__).parents[2] / "killed.py"
    run = subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads(run.stdout.splitlines()[-1])
    assert report["kills"] >= 20
    assert report["equal"]
    assert report["lost_at_most_since_last_checkpoint"]
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".pt"] == ["run.pt"]
