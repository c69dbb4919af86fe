"""``dcgraph figure``: the paper's pictures."""

from __future__ import annotations

import time
from pathlib import Path

from ..._arguments import closest, shown
from ..engine.jobs import records_folder
from ..figures import FIGURES, make
from .parsing import CommandError


def figure(
    name: str, /, *, out: Path = Path("figures"), seed: int = 0, results: Path | None = None
) -> None:
    """Draw a figure, with the numbers behind it as JSON.

    Args:
        name: the figure.
        out: folder for NAME.png and NAME.json.
        seed: seed of all random numbers, where there are any.
        results: folder of the records, for figures of runs (default: results, or those that come
            with dcgraph).
    """
    if name not in FIGURES:
        raise CommandError(f"unknown figure {shown(name)}; {closest(name, FIGURES)}", 2)
    print(FIGURES[name].plan, flush=True)
    start = time.perf_counter()
    try:
        picture, numbers = make(name, out, seed, records_folder(results))
    except OSError as error:
        blocked = isinstance(error, FileExistsError | NotADirectoryError)
        reason = "a file is in the way" if blocked else error.strerror or error
        raise CommandError(
            f"cannot write into {str(out)!r}: {reason}; choose another folder with --out."
        ) from error
    print(f"Wrote {picture} and {numbers} in {time.perf_counter() - start:.1f} seconds.")
    print(f"Look: {FIGURES[name].look}", flush=True)
