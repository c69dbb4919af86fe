"""Records: one JSON file per replica, with what is needed to believe and repeat its numbers."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from .files import write_atomically
from .outcome import Evaluation, Outcome
from .settings import Settings
from .task import Data, Task, fingerprint_of

Record = dict[str, Any]


def make_records(task: Task, outcome: Outcome, data: Data) -> list[Record]:
    """One record per replica of a population, bad ones included."""
    common = {
        "task": task.name,
        "population": {"name": population_name(outcome.replicas), "size": len(outcome.replicas)},
        "code": code_version(),
        "data": data.fingerprint,
        "hardware": hardware(outcome.population.device),
        "torch": torch.__version__,
        "seconds": round(outcome.seconds, 1),
        "steps": outcome.steps,
        "chosen_on": outcome.curve[0].split if outcome.curve else None,
        "chosen_by": outcome.chosen_by,
    }
    on_device = data.to(outcome.population.device)
    records = []
    for index, settings in enumerate(outcome.replicas):
        model = outcome.model(index)
        records.append(
            {
                **common,
                "settings": asdict(settings),
                "parameters": outcome.population.parameters,
                "chosen_at": outcome.best_step[index],
                "stopped_at": outcome.stopped_at[index],
                "curve": [_look(evaluation, index) for evaluation in outcome.curve],
                "test": outcome.test[index],
                "readout": task.readout(model, settings, on_device),
            }
        )
    return records


def _look(evaluation: Evaluation, index: int) -> Record:
    """What one evaluation says of one replica."""
    look: Record = {"step": evaluation.step, "loss": evaluation.loss[index]}
    look |= {name: values[index] for name, values in evaluation.metrics.items()}
    if evaluation.probes and evaluation.probes[index] is not None:
        look["probe"] = evaluation.probes[index]
    return look


def population_name(replicas: Sequence[Settings]) -> str:
    return fingerprint_of(json.dumps([asdict(replica) for replica in replicas]))


def write_record(path: Path, record: Record) -> None:
    """One line for each entry, and for each look of the learning curve."""
    lines = []
    for name, value in record.items():
        # Settings are numbers to compare with, to the last digit; the others were measured.
        kept = value if name == "settings" else _measured(value)
        text = json.dumps(kept, allow_nan=False)
        if name == "curve" and kept:
            looks = ",\n  ".join(json.dumps(look, allow_nan=False) for look in kept)
            text = f"[\n  {looks}\n ]"
        lines.append(f" {json.dumps(name)}: {text}")
    content = "{\n" + ",\n".join(lines) + "\n}\n"
    write_atomically(path, lambda draft: draft.write_text(content))


class RecordError(ValueError):
    """Why a record cannot be used: one line that names the remedy."""


def read_record(path: Path) -> Record:
    """A record, as :func:`write_record` left it."""
    try:
        record = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RecordError(
            f"cannot read the record {str(path)!r} ({error}); delete it, and it is made again."
        ) from error
    if not isinstance(record, dict) or "settings" not in record:
        raise RecordError(f"{str(path)!r} is not a record; delete it, and it is made again.")
    return record


def _measured(value: Any) -> Any:
    """Six digits; what could not be measured is null, for JSON knows no NaN."""
    if isinstance(value, dict):
        return {key: _measured(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_measured(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def code_version() -> str:
    """The version of the package, with the commit where it runs from a checkout."""
    from ... import __version__

    folder = Path(__file__).parent
    if commit := os.environ.get("DCGRAPH_COMMIT"):  # for a copy without its history
        return f"{__version__} ({commit})"
    commit = _git(folder, "rev-parse", "--short", "HEAD")
    if not commit:
        return __version__
    changed = "+changes" if _git(folder, "status", "--porcelain", "--", str(folder)) else ""
    return f"{__version__} ({commit}{changed})"


def _git(folder: Path, *arguments: str) -> str:
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def hardware(device: torch.device) -> str:
    """As a user would name it."""
    if device.type == "cuda":
        return f"one {torch.cuda.get_device_name(device)}"
    return f"{torch.get_num_threads()} CPU threads ({platform.machine()})"
