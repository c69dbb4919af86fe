"""The package: what it needs, and that everything public explains itself."""

from __future__ import annotations

import subprocess
import sys

import dcgraph as dc


def test_import_needs_torch_and_jaxtyping_alone() -> None:
    extras = ["beartype", "hypothesis", "matplotlib", "pytest", "tqdm", "triton", "tyro"]
    program = f"import sys; sys.modules.update(dict.fromkeys({extras})); import dcgraph"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_everything_public_has_a_docstring() -> None:
    for name in dc.__all__:
        assert (getattr(dc, name).__doc__ or "").strip(), name
