"""Where the numbers of a record come from: code, hardware."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import torch

from ... import __version__
from .ranks import ONE_RANK, Ranks, gpus


def code_version() -> str:
    """The version of the package, with the commit where it runs from a checkout."""
    folder = Path(__file__).parents[2]  # of all sources
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


def hardware(device: torch.device, ranks: Ranks = ONE_RANK) -> str:
    """As a user would name it; all ranks ask, for they may share a GPU."""
    if device.type == "cuda":
        count = gpus(ranks, device)
        used = f"{'one' if count == 1 else count} {torch.cuda.get_device_name(device)}"
        return used if ranks.world == 1 else f"{ranks.world} ranks on {used}"
    used = f"{torch.get_num_threads()} CPU threads ({platform.machine()})"
    return used if ranks.world == 1 else f"{ranks.world} ranks with {used} each"
