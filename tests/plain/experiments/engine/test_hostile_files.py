"""Files of a run that somebody has changed: each is one line, none is believed."""

from __future__ import annotations

import json
import lzma
import os
import shutil
import signal
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from dcgraph.experiments.engine import Callbacks, Interrupted, train
from dcgraph.experiments.engine.errors import CheckpointError, ModelError, RecordError
from dcgraph.experiments.engine.files import check_inside, only_process_in, parsed, read_bytes
from dcgraph.experiments.engine.models import load_model, save_model
from dcgraph.experiments.engine.records import read_probes, read_record, write_record
from made_up_records import RECORD
from parity import DATA, QUICK, TASK, THREE, same

Content = dict[str, Any]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a run that was stopped in the middle."""
    path = tmp_path_factory.mktemp("run") / "run.pt"

    def stop(step: int, steps: int) -> None:
        if step >= 9:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        train(TASK, THREE, DATA, save_to=path, callbacks=Callbacks(progress=stop))
    return path


def progress(**changed: object) -> Callable[[Content], None]:
    def change(content: Content) -> None:
        content["progress"] = json.dumps(json.loads(content["progress"]) | changed)

    return change


def curve(change_first: Callable[[Content], object]) -> Callable[[Content], None]:
    def change(content: Content) -> None:
        whole = json.loads(content["progress"])
        change_first(whole["curve"][0])
        content["progress"] = json.dumps(whole)

    return change


def best(name: str, change: Callable[[Any], object]) -> Callable[[Content], None]:
    return lambda content: content.update({f"best.{name}": change(content[f"best.{name}"])})


def state(name: str, change: Callable[[Tensor], object]) -> Callable[[Content], None]:
    return lambda content: content.update({f"state.{name}": change(content[f"state.{name}"])})


def of(**changed: object) -> Callable[[Content], None]:
    return lambda content: content.update(changed)


def folded(times: int) -> list[object]:
    """A list of 2^times words that takes no memory until it is shown."""
    word: list[object] = ["ha"]
    for _ in range(times):
        word = [word, word]
    return word


CHECKPOINTS: Mapping[str, Callable[[Content], object]] = {
    "a step far away": progress(step=10**9),
    "a negative step": progress(step=-1),
    "half a step": progress(step=9.0),
    "endless seconds": progress(seconds=10**400),
    "no seconds": progress(seconds=None),
    "no curve": progress(curve=None),
    "an empty curve": progress(curve=[]),
    "one more entry": progress(more=1),
    "deep nesting": of(progress="[" * 200_000),
    "a tensor for progress": of(progress=torch.zeros(3)),
    "a loss too large": curve(lambda one: one.update(loss=[10**400] * 3)),
    "losses of fewer": curve(lambda one: one.update(loss=[1.0])),
    "no metrics": curve(lambda one: one.update(metrics=[])),
    "an odd decoder": curve(lambda one: one["metrics"][0]["metric"].update(decoder="\x1b[2J")),
    "odd readings": curve(lambda one: one.update(probes=[[5]] * 3)),
    "readings of words": curve(lambda one: one.update(probes=[[{"gradient": "x"}]] * 3)),
    "an evaluation elsewhere": curve(lambda one: one.update(step=3)),
    "no best": best("weights", lambda weights: None),
    "best of fewer": best("step", lambda step: step[:2]),
    "best NaN": best("value", lambda value: [float("nan")] * 3),
    "best later": best("step", lambda value: [10**9] * 3),
    "best nowhere": best("weights", lambda weights: weights.to("meta")),
    "best sparse": best("weights", lambda weights: weights.to_sparse()),
    "best that unfolds": best("value", lambda value: folded(60)),
    "whole weights": state("weights", lambda weights: weights.to(torch.int8)),
    "fewer weights": state("weights", lambda weights: weights[:, :3]),
    "alive numbers": state("alive", lambda alive: alive.float()),
    "stopped and alive": state("stopped_at", lambda step: step + 3),
    "stopped later": state("stopped_at", lambda step: step + 10**9),
    "no state": state("weights", lambda weights: [1]),
    "no random numbers": of(random=None),
    "odd random numbers": of(random=[torch.full((5056,), 255, dtype=torch.uint8)]),
    "random numbers of words": of(random=["ha"]),
    "odd streams": of(streams=torch.full((3, 5056), 255, dtype=torch.uint8)),
    "streams of numbers": of(streams=torch.zeros(3, 5056)),
    "a later version": of(version=10**9),
    "a long version": of(version=10**6000),
    "a version that unfolds": of(version=folded(60)),
    "a tensor for a version": of(version=torch.zeros(5)),
    "a tensor for a format": of(format=torch.zeros(5)),
    "a tensor for settings": of(replicas=torch.zeros(5)),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_changed_checkpoint_is_one_line(name: str, stopped: Path, tmp_path: Path) -> None:
    path = tmp_path / "changed.pt"
    content = torch.load(stopped, weights_only=True)
    CHECKPOINTS[name](content)
    torch.save(content, path)
    with pytest.raises(CheckpointError) as caught:
        train(TASK, THREE, DATA, save_to=path, resume=True)
    complaint = str(caught.value)
    assert "changed.pt" in complaint and "\n" not in complaint and len(complaint) < 500


def test_what_shares_memory_or_needs_a_gradient_is_only_numbers(
    stopped: Path, tmp_path: Path
) -> None:
    whole = train(TASK, THREE, DATA)
    content = torch.load(stopped, weights_only=True)
    content["state.weights"] = torch.nn.Parameter(content["state.weights"])
    content["best.weights"] = torch.nn.Parameter(content["best.weights"])
    torch.save(content, path := tmp_path / "run.pt")
    assert same(whole, train(TASK, THREE, DATA, save_to=path, resume=True))
    content["best.weights"] = torch.zeros(1, 1).expand(content["best.weights"].shape)
    content["best.value"] = [-1.0] * 3  # so that they are written to
    torch.save(content, path)
    train(TASK, THREE, DATA, save_to=path, resume=True)


def test_weights_that_are_nan_stop_as_in_training(stopped: Path, tmp_path: Path) -> None:
    content = torch.load(stopped, weights_only=True)
    content["state.weights"][1] = float("nan")
    torch.save(content, path := tmp_path / "run.pt")
    outcome = train(TASK, THREE, DATA, save_to=path, resume=True)
    assert [step is None for step in outcome.stopped_at] == [True, False, True]


def test_a_checkpoint_is_an_ordinary_file_with_nothing_packed(
    stopped: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run.pt"
    deflated = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(stopped) as good, deflated as packed:
        for member in good.infolist():
            packed.writestr(member.filename, good.read(member))
    kinds: list[Callable[[], object]] = [
        lambda: os.mkfifo(path),
        lambda: path.symlink_to("/dev/zero"),
        lambda: path.mkdir(),
    ]
    for make in (None, *kinds):
        if make is not None:
            make()
        with pytest.raises(CheckpointError, match=r"not a (whole )?dcgraph checkpoint"):
            train(TASK, THREE, DATA, save_to=path, resume=True)
        path.rmdir() if path.is_dir() else path.unlink()


def changed_model(path: Path, notes: Mapping[str, str], **weights: Tensor) -> None:
    good = path.with_name("good")
    save_model(good, TASK, QUICK, TASK.model(QUICK), 0.5)
    from safetensors import safe_open

    with safe_open(good, framework="pt") as file:
        own = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        save_file(own | weights, path, file.metadata() | notes)


WIDE = json.dumps({"width": 10**11})

MODELS: Mapping[str, tuple[Mapping[str, str], Mapping[str, Tensor], str]] = {
    "another task": ({"task": "x" * 10**6}, {}, "is a model of"),
    "no settings": ({"settings": "null"}, {}, "cannot read"),
    "settings twice": ({"settings": '{"lr": 1, "lr": 2}'}, {}, "'lr' is there twice"),
    "deep settings": ({"settings": "[" * 100_000}, {}, "nested too deeply"),
    "an endless number": ({"settings": '{"lr": 1e999}'}, {}, "too large"),
    "a long number": ({"settings": f'{{"seed": {"9" * 5000}}}'}, {}, "cannot read"),
    "NaN": ({"settings": '{"lr": NaN}'}, {}, "NaN is no number of JSON"),
    "a path": ({"settings": '{"gate": "../../x"}'}, {}, "unknown setting"),
    "wide": ({"settings": WIDE}, {}, "other weights|no model can have"),
    "narrow": ({"settings": '{"width": -1}'}, {}, "no model can have"),
    "whole weights": ({}, {"read.weight": torch.ones(8, 1, dtype=torch.int8)}, "other weights"),
    "half weights": ({}, {"read.weight": torch.ones(8, 1).half()}, "other weights"),
    "more weights": ({}, {"more": torch.ones(1)}, "other weights"),
    "NaN weights": ({}, {"read.weight": torch.full((8, 1), float("nan"))}, "NaN or infinite"),
    "endless weights": ({}, {"read.weight": torch.full((8, 1), float("inf"))}, "NaN or infinite"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_changed_model_is_one_line(name: str, tmp_path: Path) -> None:
    notes, weights, complaint = MODELS[name]
    changed_model(path := tmp_path / "m.safetensors", notes, **weights)
    with pytest.raises(ModelError, match=complaint) as caught:
        load_model(path, TASK)
    said = str(caught.value)
    assert "m.safetensors" in said and "\n" not in said and len(said) < 500


@pytest.mark.parametrize("length", [0, 2, 10**6, 2**40, 2**63])
def test_the_header_of_a_model_may_lie(length: int, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b'{"a":' * 50)
    with pytest.raises(ModelError, match="not a safetensors file"):
        load_model(path, TASK)


@pytest.mark.parametrize("read", [read_record, lambda path: load_model(path, TASK)])
def test_a_pipe_is_not_waited_for(read: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "pipe")
    with pytest.raises((RecordError, ModelError), match="ordinary file"):
        read(path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises((RecordError, ModelError), match="ordinary file"):
        read(path)


RECORDS: list[tuple[str, str]] = [
    ('"seed": 3', '"seed": "3"'),
    ('"seed": 3', '"seed": true'),
    ('"epochs": 2', '"epochs": null'),
    ('"seconds": 1.5', '"seconds": 1e999'),
    ('"seconds": 1.5', '"seconds": NaN'),
    ('"steps": 20', f'"steps": {10**400}'),
    ('"steps": 20', '"steps": 2e1'),
    ('"name":"ab"', '"name":7'),
    ('"size":2', '"size":[]'),
    ('"task": "paths"', '"task": ["paths"]'),
    ('"step": [10,20]', '"step": [10,"20"]'),
    ('"step": [10,20]', '"step": 10'),
    ('"loss": [0.5,null]', '"loss": [0.5]'),
    ('"loss": [0.5,null]', '"loss": [0.5,false]'),
    ('"name":"MQ"', '"name":5'),
    ('"decoder":"beam"', '"decoder":["beam"]'),
    ('"length":2', '"length":"2"'),
    ('"code": "0.1.0"', '"code": "0.1.0","code": "0.2"'),
    ('"settings": {', f'"settings": {"[" * 100_000}{{'),
    ('"calibration": {', '"calibration": {"a": [1],'),
    ('"stopped_at": null', '"stopped_at": "never"'),
]


@pytest.mark.parametrize(("here", "there"), RECORDS)
def test_a_changed_record_is_one_line(here: str, there: str, tmp_path: Path) -> None:
    write_record(path := tmp_path / "seed-3.json", RECORD)
    text = path.read_text()
    assert here in text
    path.write_text(text.replace(here, there, 1))
    with pytest.raises(RecordError) as caught:
        read_record(path)
    said = str(caught.value)
    assert "seed-3.json" in said and "\n" not in said and len(said) < 500


def test_probes_that_are_damaged_are_one_line(tmp_path: Path) -> None:
    record, path = tmp_path / "a.json", tmp_path / "a.probes.json.xz"
    good = lzma.compress(b'{"1": [{"name": "x", "call": 0, "gradient": NaN}]}')
    path.write_bytes(good)
    assert list(read_probes(record)) == [1]
    for content in (
        good[:-20],
        good[:30] + b"x" + good[31:],
        lzma.compress(b"[" * 100_000),
        lzma.compress(b'{"1": 5}'),
        lzma.compress(b'{"x": []}'),
        lzma.compress(b'{"1": [{"gradient": "x"}]}'),
        lzma.compress(b" " * (1 << 28) + b"{}", preset=0),  # 40 kB
    ):
        path.write_bytes(content)
        with pytest.raises(RecordError, match=r"a\.probes\.json\.xz.*both are made again"):
            read_probes(record)


def test_json_is_that_of_the_standard() -> None:
    assert parsed('{"a": [1, 2.5, null, true, "x"]}') == {"a": [1, 2.5, None, True, "x"]}
    for text in ("NaN", "-Infinity", "1e400", '{"a": 1, "a": 1}', "[" * 100_000, "9" * 5000, "{"):
        with pytest.raises(ValueError, match=r"\w"):
            parsed(text)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # of holes
    with pytest.raises(OSError, match="larger than 1 MiB"):
        read_bytes(path, 1 << 20)


def test_a_link_out_of_the_folder_is_found(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    run.mkdir()
    elsewhere.mkdir()
    (run / "inside").symlink_to(run)
    check_inside(run, run / "inside", run / "not yet" / "there")
    (run / "out").symlink_to(elsewhere)
    (run / "round").symlink_to(run / "round")
    for name in ("out", "round", "../elsewhere"):
        with pytest.raises(OSError, match="leads out of"):
            check_inside(run, run / name)


def test_two_processes_do_not_work_in_one_folder(tmp_path: Path) -> None:
    with only_process_in(tmp_path / "work"):
        pid = os.fork()
        if pid == 0:
            try:
                with only_process_in(tmp_path / "work"):
                    os._exit(1)
            except OSError as error:
                os._exit(0 if "another process" in str(error) else 2)
        assert os.waitpid(pid, 0)[1] == 0
    with only_process_in(tmp_path / "work"):  # it is free again
        shutil.rmtree(tmp_path / "work")
