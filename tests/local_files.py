"""Data files that a test needs and does not download."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dcgraph.experiments.engine.datasets import File, locate
from dcgraph.experiments.engine.errors import DataError


def require(*files: File) -> None:
    """Skip the test where a file is not on this machine."""
    try:
        for file in files:
            locate(replace(file, urls=()))
    except DataError as error:
        pytest.skip(str(error))
