"""Models are files that build themselves, and the best of a folder is found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from dcgraph.experiments.engine import Settings, models
from dcgraph.experiments.engine.errors import ModelError
from dcgraph.experiments.engine.jobs import Job
from dcgraph.experiments.engine.models import (
    calibration_of,
    carried_by,
    load_model,
    save_model,
    settings_of,
)
from dcgraph.experiments.engine.runs import perform
from parity import QUICK, TASK, Parity


def test_models_are_files_that_build_themselves(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = TASK.model(QUICK).eval()
    save_model(tmp_path / "models" / "a.safetensors", TASK, QUICK, model, 0.5, {"sum": 0.25})
    save_model(tmp_path / "models" / "b.safetensors", TASK, QUICK, TASK.model(QUICK), 0.2)
    loaded, settings = load_model(tmp_path, TASK)  # of a run's folder, the best
    bits = torch.tensor([[0.0, 1.0, 1.0]])
    assert settings == QUICK and torch.equal(loaded(bits), model(bits))
    assert calibration_of(tmp_path) == {"sum": 0.25}
    assert calibration_of(tmp_path / "models" / "b.safetensors") == {}
    save_file({}, tmp_path / "older.safetensors")
    assert calibration_of(tmp_path / "older.safetensors") == {}
    save_file({}, tmp_path / "whole.safetensors", {"calibration": '{"a": 1.5, "b": 2}'})
    assert calibration_of(tmp_path / "whole.safetensors") == {"a": 1.5, "b": 2.0}
    for odd in ("[1]", "{", '{"a": 1.0, "b": null}', '{"a": "1"}', '{"a": true}'):
        save_file({}, tmp_path / "odd.safetensors", {"calibration": odd})
        with pytest.raises(ModelError, match="calibration this dcgraph cannot read; train again"):
            calibration_of(tmp_path / "odd.safetensors")
    with pytest.raises(ModelError, match="no model"):
        load_model(tmp_path / "c.safetensors", TASK)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ModelError, match="holds no models"):
        load_model(empty, TASK)
    (tmp_path / "text.safetensors").write_text("hello, this is not it")
    with pytest.raises(ModelError, match="not a safetensors file"):
        load_model(tmp_path / "text.safetensors", TASK)


@pytest.mark.parametrize("width", [-(2**31), 10**12 - 1])
def test_settings_that_no_model_can_have_are_said(width: int, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(path, TASK, replace(QUICK, width=width), TASK.model(QUICK), 0.5)
    with pytest.raises(ModelError, match=r"has settings that no model can have \(.*\); train it"):
        load_model(path, TASK)


def test_what_the_reader_says_of_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    """It repeats what is in the header, lines and all."""
    header = json.dumps({"w": {"dtype": "\r\n" * 999, "shape": [1], "data_offsets": [0, 4]}})
    path = tmp_path / "lines.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(4))
    with pytest.raises(ModelError, match="not a safetensors file") as caught:
        load_model(path, TASK)
    assert len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 500


def test_the_best_of_a_folder_is_never_one_that_diverged(tmp_path: Path) -> None:
    replicas = [replace(QUICK, lr=1e30), replace(QUICK, seed=1)]
    jobs = [
        Job(r, tmp_path / f"{k}.json", tmp_path / f"{k}.safetensors")
        for k, r in enumerate(replicas)
    ]
    list(perform(TASK, jobs, tmp_path / "work"))
    (tmp_path / "a.safetensors").write_text("junk")
    _, settings = load_model(tmp_path, TASK)
    assert settings == replicas[1]


class Carrying(Parity):
    """With something for its models to carry."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def carried(self, settings: Settings) -> bytes:
        return self.content


def test_models_carry_what_the_task_gives_them(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, path = TASK.model(QUICK).eval(), tmp_path / "m.safetensors"
    for content in (b"\x00\xffgraph", b"x"):
        save_model(path, Carrying(content), QUICK, model, 0.5)
        assert carried_by(path) == carried_by(tmp_path) == content
        loaded, settings = load_model(path, TASK)
        bits = torch.tensor([[0.0, 1.0, 1.0]])
        assert settings == QUICK and torch.equal(loaded(bits), model(bits))
    first = path.read_bytes()
    save_model(path, Carrying(b"x"), QUICK, model, 0.5)
    assert path.read_bytes() == first, "equal models are equal files"
    assert settings_of(path)["epochs"] == QUICK.epochs
    save_model(path, TASK, QUICK, model, 0.5)
    assert carried_by(path) == b""


def test_models_saved_before_they_carried_anything_still_load(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_model(path, TASK, QUICK, TASK.model(QUICK), 0.5)
    path.write_bytes(path.read_bytes().replace(b"dcgraph model 3", b"dcgraph model 2"))
    load_model(path, TASK)
    assert carried_by(path) == b""
    path.write_bytes(path.read_bytes().replace(b"dcgraph model 2", b"dcgraph model 1"))
    with pytest.raises(ModelError, match="of another version"):
        load_model(path, TASK)


def test_what_is_no_bytes_is_not_carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.safetensors"
    for tensor in (torch.zeros(3), torch.zeros(2, 2, dtype=torch.uint8)):
        save_file({"dcgraph.carried": tensor}, path)
        with pytest.raises(ModelError, match="carries what this dcgraph cannot read; train again"):
            carried_by(path)
    save_file({"dcgraph.carried": torch.zeros(30, dtype=torch.uint8)}, path)
    monkeypatch.setattr(models, "_LARGEST_CARRIED", 29)
    with pytest.raises(ModelError, match="cannot read"):
        carried_by(path)
    for odd in ("[]", "{"):
        save_file({}, path, {"settings": odd})
        with pytest.raises(ModelError, match="settings this dcgraph cannot read"):
            settings_of(path)
