"""Training from the command line: records, models and a page where they were asked for."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest

from dcgraph.experiments import cli
from dcgraph.experiments.engine.checkpoint import load

QUICK = ["train", "parity:Parity", "--epochs", "2", "--evaluations", "2"]


def test_train_leaves_records_and_models_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    sweep = ["--sweep", "dropres=0,1", "--sweep", "width=4,8", "--seeds", "2"]
    assert cli.main([*QUICK, *sweep, "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert "8 replicas of parity on cpu" in shown.out
    assert re.search(r"dropres-True_width-8\n +argmax +sample\n +accuracy +\d", shown.out)
    assert str(out / "records") in shown.out
    progress = shown.err.splitlines()
    assert 2 <= len(progress) <= 2 * 20 and all("step" in line for line in progress)
    assert "left" in progress[-1] and "loss" in progress[-1] and "accuracy" in progress[-1]
    names = sorted(path.stem for path in (out / "records").glob("*.json"))
    assert names[0] == "dropres-False_width-4_seed-0" and len(names) == 8
    assert sorted(path.stem for path in (out / "models").iterdir()) == names
    assert not (out / "checkpoints").exists()


def test_progress_says_no_metric_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["train", "parity:Parity", "--epochs", "20", "--evaluate-every", "10"]
    assert cli.main([*few, "--evaluations", "1", "--out", str(tmp_path / "run")]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if " left" in line]
    found = [line.partition(" left")[2] for line in lines]
    assert len(lines) > 10 and len([one for one in found if one]) == 1
    assert next(filter(None, found)).startswith(", at step 80: loss")


def test_a_second_run_does_not_overwrite_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "run")]
    assert cli.main([*QUICK, *out]) == 0
    capsys.readouterr()
    assert cli.main([*QUICK, *out]) == 1
    assert "--resume" in one_line(capsys.readouterr().err)
    assert cli.main(["train", "parity:Parity", *out, "--resume"]) == 0  # nothing is left to do
    assert re.search(r"accuracy +\d", capsys.readouterr().out)
    assert cli.main([*QUICK, "--lr", "1", *out, "--resume"]) == 2
    assert "leave the others out" in one_line(capsys.readouterr().err)
    assert cli.main(["train", "parity:Parity", "--out", str(tmp_path), "--resume"]) == 1
    assert "no run" in one_line(capsys.readouterr().err)


def test_a_mistake_that_only_the_data_show_leaves_the_folder_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "run")]
    assert cli.main([*QUICK, "--batch", "100", *out]) == 2
    assert "64 training examples" in capsys.readouterr().err
    assert cli.main([*QUICK, *out]) == 0
    plan = tmp_path / "run" / "run.json"
    command_lost = {"task": "parity", "replicas": []}
    for content in ("{", "{}", json.dumps({"task": "other"}), json.dumps(command_lost)):
        plan.write_text(content)
        capsys.readouterr()
        assert cli.main(["train", "parity:Parity", *out, "--resume"]) == 1
        assert "run" in one_line(capsys.readouterr().err)


@pytest.mark.parametrize("name", ["records", "models", "checkpoints", "tensorboard"])
def test_nothing_is_written_where_a_link_leads(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    replicas = [{"epochs": 1}]
    plan = {"task": "parity", "command": "", "replicas": replicas}
    (out / "run.json").write_text(json.dumps(plan))
    (out / name).symlink_to("../elsewhere")
    assert cli.main(["train", "parity:Parity", "--out", str(out), "--resume"]) == 1
    assert "leads out of" in one_line(capsys.readouterr().err)
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "[" * 100_000,
        '{"task": "parity", "task": "parity", "replicas": [{}], "command": ""}',
        '{"task": "parity", "command": "", "replicas": {"epochs": 1}}',
        '{"task": "parity", "command": "", "replicas": [[]]}',
        '{"task": "parity", "command": "", "replicas": [{"epochs": 1e999}]}',
        f'{{"task": "parity", "command": "", "replicas": [{{"width": {10**30}}}]}}',
        f'{{"task": "parity", "command": "", "replicas": [{{"width": {"9" * 5000}}}]}}',
        '{"task": "parity", "command": "", "replicas": [{"gate": "x/../../y"}]}',
        f'{{"task": {json.dumps(["x" * 10**6])}}}',
    ],
)
def test_a_plan_that_somebody_changed_is_one_line(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_text(content)
    assert cli.main(["train", "parity:Parity", "--out", str(tmp_path), "--resume"]) == 1
    assert len(one_line(capsys.readouterr().err)) < 500
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_training_needs_no_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "parity:Parity"]) == 0
    assert "best on the validation set" in capsys.readouterr().out


def test_a_terminal_gets_a_bar(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 120, 0, 0))
    run = subprocess.Popen(
        [sys.executable, "-m", "dcgraph", *QUICK, "--epochs", "40", "--out", str(tmp_path / "run")],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the end of what was written to a terminal
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert run.wait() == 0
    text = shown.decode()
    assert "step/s" in text and "accuracy (argmax)" in text and "320/320" in text
    assert "<00:" in text  # the time left


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "dcgraph"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = ["train", "parity:Parity", "--out", str(out)]
    run = subprocess.Popen(
        [*command, *arguments, "--epochs", "2000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    checkpoints = out / "checkpoints"
    while not list(checkpoints.glob("*.pt")):
        assert run.poll() is None, run.communicate()
        time.sleep(0.01)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 130
    assert errors.splitlines()[-1] == (
        f"dcgraph: interrupted; go on with: dcgraph train parity:Parity --out {out} --resume"
    )
    (checkpoint,) = checkpoints.glob("*.pt")
    assert load(checkpoint)["task"] == "parity"


def test_tensorboard_files_are_an_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert cli.main([*QUICK, "--tensorboard", "--out", str(tmp_path)]) == 1
    assert "pip install 'dcgraph[tensorboard]'" in capsys.readouterr().err


def test_tensorboard_files_have_the_curves(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard, an extra, is not installed")
    assert cli.main([*QUICK, "--seeds", "2", "--tensorboard", "--out", str(tmp_path)]) == 0
    runs = sorted(path.name for path in (tmp_path / "tensorboard").iterdir())
    assert runs == ["seed-0", "seed-1"]
    (events,) = (tmp_path / "tensorboard" / "seed-1").iterdir()
    assert b"accuracy (argmax)" in events.read_bytes()


def one_line(text: str) -> str:
    (line,) = text.splitlines()
    return line


OPEN = ["train", "parity_left_open:LeftOpen"]


def test_what_a_preset_leaves_open_is_fitted_and_written_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert cli.main([*OPEN, "--epochs", "2", "--sweep", "width=4,6", "--out", str(out)]) == 0
    replicas = json.loads((out / "run.json").read_text())["replicas"]
    # The batch is fitted to the width, whether that is swept or not; nothing that is given changes.
    assert [(one["width"], one["batch"], one["epochs"]) for one in replicas] == [
        (4, 8, 2),
        (6, 12, 2),
    ]
    with pytest.raises(SystemExit):
        cli.main([*OPEN, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "examples per step (default: fitted to the data)" in said
    assert cli.main([*OPEN, "--batch", "5", "--epochs", "1", "--out", str(tmp_path / "b")]) == 0
    (replica,) = json.loads((tmp_path / "b" / "run.json").read_text())["replicas"]
    assert (replica["batch"], replica["width"]) == (5, 8)
    assert (
        cli.main([*OPEN, "--preset", "quick", "--epochs", "1", "--out", str(tmp_path / "c")]) == 0
    )
    (replica,) = json.loads((tmp_path / "c" / "run.json").read_text())["replicas"]
    assert replica["batch"] == 8, "as the preset has it"


def test_what_cannot_be_fitted_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "some" / "run"
    assert cli.main([*OPEN, "--width", "99", "--out", str(out)]) == 2
    assert "99 is too wide" in one_line(capsys.readouterr().err)
    assert not out.parent.exists()


def test_ranks_go_on_where_only_those_of_another_machine_count_as_started_again(
    tmp_path: Path,
) -> None:
    """torchrun counts restarts where a rank has failed; elsewhere it may start ranks uncounted."""
    command = [*QUICK, "--seeds", "4", "--out", str(tmp_path / "run")]
    assert cli.main(command) == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "DCGRAPH_RANKS_TIMEOUT": "60",
    }  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "dcgraph", *command],
            env=common | {"RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": str(rank)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert "Records: " in said[0]
