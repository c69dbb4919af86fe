"""Trained models as files: weights in the safetensors format, with what is needed to build them."""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..._arguments import shown
from .errors import ModelError, shortened
from .files import parsed, write_atomically
from .settings import Settings, from_dict
from .task import AnyTask, S, Task

_FORMAT = "dcgraph model 3"
_READ = {_FORMAT, "dcgraph model 2"}  # which carried nothing
_CARRIED = "dcgraph.carried"
"""The name, which no parameter has, of the tensor of bytes that a task lets its models carry."""

_LARGEST_CARRIED = 1 << 27  # bytes
_LARGEST = 1e38  # of what is calibrated


def save_model(
    path: Path,
    task: AnyTask,
    settings: Settings,
    model: nn.Module,
    score: float,
    calibration: Mapping[str, float] | None = None,
) -> None:
    """Weights and settings, what is known of them, and what the task lets its models carry.

    ``score`` is what the weights were selected by, so that the best of a folder can be found;
    ``calibration`` is what was tuned on the validation split, which says how the model is used.
    """
    weights = {name: p.detach().cpu().contiguous() for name, p in model.named_parameters()}
    notes = {
        "format": _FORMAT,
        "task": task.name,
        "settings": json.dumps(asdict(settings)),
        "score": f"{score:.6f}",
        "calibration": json.dumps(dict(calibration or {})),
        "vocabulary": task.vocabulary(settings),
    }
    if carried := task.carried(settings):
        weights[_CARRIED] = torch.frombuffer(bytearray(carried), dtype=torch.uint8)
    content = _packed(weights, notes)
    write_atomically(path, lambda draft: draft.write_bytes(content))


def _packed(weights: dict[str, Tensor], notes: dict[str, str]) -> bytes:
    """The bytes of a safetensors file; equal weights and notes give equal bytes.

    The format is the length of a header, the header in JSON, and the numbers. safetensors writes
    the notes in any order.
    """
    from safetensors.torch import save  # an extra

    packed = save(weights, notes)
    begin = 8 + int.from_bytes(packed[:8], "little")
    header = json.loads(packed[8:begin])
    notes = dict(sorted(header.pop("__metadata__").items()))
    text = json.dumps({"__metadata__": notes, **header}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # numbers begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text + packed[begin:]


def load_model(path: Path, task: Task[S]) -> tuple[nn.Module, S]:
    """The model in a file, or the best one in the folder of a run; in eval mode."""
    path = _best_in(path) if path.is_dir() else path
    with _opened(path) as file:
        notes = file.metadata() or {}
        if notes.get("format") not in _READ:
            raise ModelError(f"{str(path)!r} is not a dcgraph model, or of another version.")
        if notes.get("task") != task.name:
            raise ModelError(
                f"{str(path)!r} is a model of {shown(notes.get('task'))}, not {task.name!r}."
            )
        settings = _settings_of(notes, path, task)
        # Before anything of the size that the file says, or its settings, is made:
        wanted = _shapes(path, task, settings)
        names = [name for name in file.keys() if name != _CARRIED]  # noqa: SIM118
        slices = {name: file.get_slice(name) for name in names}
        found = {name: (one.get_dtype(), one.get_shape()) for name, one in slices.items()}
        if wanted != found:
            raise ModelError(f"{str(path)!r} has other weights than its settings ask for.")
        weights = {name: file.get_tensor(name) for name in found}
    if not all(bool(weight.isfinite().all()) for weight in weights.values()):
        raise ModelError(f"{str(path)!r} has weights that are NaN or infinite; train it again.")
    model = task.model(settings)
    model.load_state_dict(weights, strict=False)
    return model.eval(), settings


def _settings_of(notes: Mapping[str, str], path: Path, task: Task[S]) -> S:
    try:
        # A class variable cannot have the type S: task.settings is type[S], but is not typed so.
        settings = cast(S, from_dict(task.settings, parsed(notes["settings"])))
        vocabulary = notes.get("vocabulary", "") and task.vocabulary(settings)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{str(path)!r} has settings this dcgraph cannot read: {shortened(error)}"
        ) from error
    if vocabulary != notes.get("vocabulary", ""):
        raise ModelError(
            f"{str(path)!r} was trained when its data had other names or triples than now; bring "
            "those data back, or train again."
        )
    return settings


def _shapes(path: Path, task: Task[S], settings: S) -> dict[str, tuple[str, list[int]]]:
    """The kinds and shapes of the weights that a model of these settings has."""
    try:
        with torch.device("meta"):
            model = task.model(settings)
    except Exception as error:  # whatever a task's model says of a width of -1
        raise ModelError(
            f"{str(path)!r} has settings that no model can have ({shortened(error)}); train it "
            "again."
        ) from error
    return {
        name: (_KINDS.get(p.dtype, str(p.dtype)), list(p.shape))
        for name, p in model.named_parameters()
    }


_KINDS = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
"""As the format has them."""


def settings_of(path: Path) -> dict[str, Any]:
    """The settings of the model that :func:`load_model` finds there, as its file has them."""
    path = _best_in(path) if path.is_dir() else path
    try:
        found = parsed(_notes(path).get("settings", "{}"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ModelError(f"{str(path)!r} has settings this dcgraph cannot read; train again.")
    return found


def vocabulary_of(path: Path) -> str:
    """The fingerprint of names that the model was saved with; empty if it has none."""
    return _notes(_best_in(path) if path.is_dir() else path).get("vocabulary", "")


def carried_by(path: Path) -> bytes:
    """What the model that :func:`load_model` finds there carries; empty if it carries nothing."""
    path = _best_in(path) if path.is_dir() else path
    with _opened(path) as file:
        if _CARRIED not in file.keys():  # noqa: SIM118
            return b""
        shape = file.get_slice(_CARRIED).get_shape()
        if len(shape) != 1 or shape[0] > _LARGEST_CARRIED:
            raise ModelError(f"{str(path)!r} carries what this dcgraph cannot read; train again.")
        carried = file.get_tensor(_CARRIED)
    if carried.dtype is not torch.uint8:
        raise ModelError(f"{str(path)!r} carries what this dcgraph cannot read; train again.")
    return ctypes.string_at(carried.data_ptr(), carried.numel())


def calibration_of(path: Path) -> dict[str, float]:
    """What was tuned for the model that :func:`load_model` finds there; empty if nothing was."""
    path = _best_in(path) if path.is_dir() else path
    try:
        found = parsed(_notes(path).get("calibration", "{}"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(
        type(value) in (int, float) and abs(value) < _LARGEST for value in found.values()
    ):
        raise ModelError(f"{str(path)!r} has a calibration this dcgraph cannot read; train again.")
    return {name: float(value) for name, value in found.items()}


def _notes(path: Path) -> dict[str, str]:
    with _opened(path) as file:
        return file.metadata() or {}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file of a model, or a line that says why there is none."""
    from safetensors import SafetensorError, safe_open

    try:
        if path.exists() and not path.is_file():  # such as a pipe that would be waited for
            raise OSError("no ordinary file")
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError:
        raise ModelError(
            f"there is no model {str(path)!r}; name a file, or the folder of a finished run."
        ) from None
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{str(path)!r} is not a safetensors file: {shortened(error)}.") from error


def _best_in(folder: Path) -> Path:
    files = sorted(folder.glob("models/*.safetensors")) or sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelError(f"{str(folder)!r} holds no models; a finished run has them in models/.")

    def score(path: Path) -> float:
        try:
            return float(_notes(path)["score"])
        except (ModelError, KeyError, ValueError):  # not one of ours
            return -math.inf

    return max(files, key=score)
