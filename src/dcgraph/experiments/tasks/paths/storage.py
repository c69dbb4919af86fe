"""Tensors that took long to compute, kept on disk for the next time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from ...engine.datasets import cache_folder
from ...engine.files import write_atomically
from ...engine.task import Batch


def remembered(name: str, make: Callable[[], Batch], folder: Path | None = None) -> Batch:
    """The tensors of that name in the folder; they are made, and put there, if there are none.

    The name must change with whatever the tensors depend on. The folder is that of the user's cache
    unless another is given. A file that cannot be read is made anew, and where nothing can be
    written, nothing is kept. Loading runs no code.
    """
    path = (folder or cache_folder() / "paths") / f"{name}.pt"
    with suppress(Exception):  # absent, cut, of another kind: torch raises all sorts of errors
        stored = torch.load(path, weights_only=True)
        if isinstance(stored, dict):
            return stored
    made = make()
    with suppress(OSError):
        write_atomically(path, lambda draft: torch.save(made, draft))
    return made
