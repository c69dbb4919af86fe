"""Records of the examples, from which the docs have their numbers.

    python examples/record.py           # all of them
    python examples/record.py NAME ...  # some

Each example has a function ``run()``; what it returns is written to results/examples/NAME.json,
with the code, the hardware and the versions that made it.
"""

from __future__ import annotations

import argparse
import runpy
import time
from pathlib import Path

import torch

from dcgraph.experiments.engine.files import write_json
from dcgraph.experiments.engine.provenance import code_version, hardware

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "examples"


def names() -> list[str]:
    """Every program here that has something to record."""
    return sorted(path.stem for path in HERE.glob("*.py") if path != Path(__file__))


def record(name: str) -> None:
    example = runpy.run_path(str(HERE / f"{name}.py"))
    began = time.monotonic()
    found = example["run"]()
    made_by = {
        "code": code_version(),
        "hardware": hardware(torch.device("cpu")),
        "torch": torch.__version__,
        "seconds": round(time.monotonic() - began, 1),
    }
    write_json(RESULTS / f"{name}.json", {"example": name, **made_by, "found": found})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help=f"of: {', '.join(names())}; all, if none is given")
    chosen = parser.parse_args().names or names()
    if unknown := set(chosen) - set(names()):
        parser.error(f"there is no example {', '.join(sorted(unknown))}; see --help.")
    for name in chosen:
        print(f"{name} ...", flush=True)
        record(name)


if __name__ == "__main__":
    main()
