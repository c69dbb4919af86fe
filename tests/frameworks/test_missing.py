"""Without its library a module of callbacks says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "missing", "package"),
    [
        ("lightning", "lightning', 'pytorch_lightning", "pytorch-lightning"),
        ("transformers", "transformers", "transformers"),
    ],
)
def test_what_is_missing_is_said(module: str, missing: str, package: str) -> None:
    program = (
        f"import sys; sys.modules.update(dict.fromkeys(['{missing}'])); import dcgraph.frameworks\n"
        f"try: import dcgraph.frameworks.{module}\nexcept ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip().endswith(f"run: pip install {package}"), done.stderr
