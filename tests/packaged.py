"""Build the package as it would be released, and use it in a clean environment.

python tests/packaged.py DIST; `make package` does it. First only the library is installed, which
needs nothing but torch and jaxtyping, and then one extra after the other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRAIN = """
import sys
import torch
import dcgraph as dc
node = dc.Discrete(4, 3)
dials = dc.Dials(tau=2.0, beta=dc.temp_match(2.0, 0.1), alpha=dc.linear(0, 1, 5)).attach(node)
for _ in range(10):
    node(torch.randn(8, 4)).square().sum().backward()
    dials.step()
rows = node.eval()(torch.randn(8, 4))
assert all((row == node.codebook).all(-1).any() for row in rows)
missing = {"numpy", "tqdm", "matplotlib"} & set(sys.modules)
assert not missing, missing
"""


def run(*command: str | Path, where: Path) -> str:
    """What a command prints; its error ends the program."""
    print("+", *command[:6], flush=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command], cwd=where, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}{command[0]} failed.")
    return done.stdout


def main(arguments: Sequence[str]) -> None:
    dist = Path(arguments[0]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        tools = environment(where / "tools")
        install(tools, "build", "twine")
        run(tools / "python", "-m", "build", "--outdir", dist, ROOT, where=where)
        (wheel,) = dist.glob("*.whl")
        run(tools / "python", "-m", "twine", "check", "--strict", *dist.iterdir(), where=where)
        clean = environment(where / "clean")
        install(clean, str(wheel))
        run(clean / "python", "-c", TRAIN, where=where)
        installed = run(clean / "pip", "list", "--format=freeze", where=where)
        assert "tqdm" not in installed and "matplotlib" not in installed
        assert "COMMAND is one of" in run(clean / "dcgraph", "--help", where=where)
        install(clean, f"{wheel}[cli]")
        shown = run(clean / "dcgraph", "predict", "listops", "[MAX 2 9 [MIN 4 7 ] 0 ]", where=where)
        assert "9" in shown
        install(clean, f"{wheel}[cli,viz]")
        run(clean / "dcgraph", "figure", "saturation", where=where)
        assert (where / "figures" / "saturation.png").stat().st_size > 10_000
    print(f"{wheel.name} and its source archive are in {dist}.")


def environment(folder: Path) -> Path:
    """The programs of a new virtual environment."""
    venv.create(folder, with_pip=True)
    return folder / "bin"


def install(programs: Path, *requirements: str) -> None:
    versions = ROOT / "constraints.txt"
    quiet = ("--quiet", "--disable-pip-version-check", "--constraint", versions)
    run(programs / "pip", "install", *quiet, *requirements, where=ROOT)


if __name__ == "__main__":
    main(sys.argv[1:])
