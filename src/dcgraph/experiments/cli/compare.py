"""``dcgraph compare``: every gradient estimator on the same tasks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..._arguments import closest, shown
from ..compare.chains_record import chains_table
from ..engine.errors import RecordError
from ..engine.tables import Table, as_text
from ..figures import FIGURES, make
from ..tasks import get_table
from .parsing import CommandError
from .tables import run_missing, say_what_runs


@dataclass(frozen=True)
class Compared:
    """A part of the comparison: tables, and the figures that are drawn of their records."""

    summary: str
    tables: tuple[str, ...]  # none for chains, which have a record of their own
    figures: tuple[str, ...]
    seconds: float = 0.0  # that a run takes of a CPU core, with Gumbel-softmax, as measured


COMPARISONS = {
    "chains": Compared(
        "chains whose exact gradient is known", (), ("chains", "chains-residual", "chains-errors")
    ),
    "addition": Compared(
        "sums of three handwritten digits", ("estimators-addition",), ("estimators",), 1.2
    ),
    "listops": Compared(
        "short expressions of ListOps", ("estimators-listops",), ("estimators",), 1.2
    ),
    "paths": Compared("paths of a small graph", ("estimators-paths",), ("estimators",), 1.0),
    "plane": Compared(
        "tau and beta, both constant, on the three tasks",
        ("plane-addition", "plane-listops", "plane-paths"),
        ("plane",),
        1.1,
    ),
}


def compare(
    names: tuple[str, ...] = (),
    /,
    *,
    results: Path = Path("results"),
    out: Path = Path("figures"),
    data_dir: Path | None = None,
    device: str = "auto",
    dry: bool = False,
) -> None:
    """Compare all gradient estimators.

    On chains whose gradient is known, bias, variance and direction are measured.
    On three tasks each estimator trains with and without DropRes and TempMatch,
    several seeds, at the tau that is best on the validation split. What is missing
    of the records is made, and what was cut off goes on; then the tables are
    printed and the figures drawn.
    Takes about an hour and a half of a CPU core; what has records takes nothing.

    Args:
        names: what to compare on; everything, if none is given.
        results: folder of the records.
        out: folder of the figures.
        data_dir: folder of the data; else $DCGRAPH_DATA, the cache, a download.
        device: auto, cpu, cuda.
        dry: only say what would run.
    """
    for name in names:
        if name not in COMPARISONS:
            raise CommandError(f"unknown comparison {shown(name)}; {closest(name, COMPARISONS)}", 2)
    chosen = {name: one for name, one in COMPARISONS.items() if name in names or not names}
    chains = results / "compare" / "chains.json" if "chains" in chosen else None
    tables = [get_table(name) for one in chosen.values() for name in one.tables]
    by_task: dict[str, list[Table]] = {}
    for table in tables:
        by_task.setdefault(table.task, []).append(table)
    if dry:
        if chains is not None:
            print("chains: about 10 minutes on a CPU core, less what has been measured.")
        if not tables:
            return
        runs = sum(say_what_runs(some, results) for some in by_task.values())
        each = statistics.fmean(one.seconds for one in chosen.values() if one.tables)
        print(
            f"In all {runs} runs, from {runs * each / 120:.0f} minutes on 2 CPU cores; estimators "
            "that draw more, or compute the loss more than once, take several times as long."
        )
        return
    from ..engine.ranks import started_ranks  # start-up time: torch

    with started_ranks() as ranks:
        if chains is not None and ranks.is_main:
            _measure(chains)
        for some in by_task.values():
            run_missing(some, results, ranks, data_dir=data_dir, device=device)
    if ranks.is_main:
        for table in tables:
            print(f"\n{as_text(table, results)}", flush=True)
        figures = dict.fromkeys(name for one in chosen.values() for name in one.figures)
        _draw(list(figures), results, out)


def _measure(record: Path) -> None:
    """The chains, on one CPU core."""
    from ..compare.chains import run_chains  # start-up time: torch

    print(chains_table(run_chains(record, progress=partial(print, flush=True))), flush=True)


def _draw(figures: Sequence[str], results: Path, out: Path) -> None:
    """The figures, as far as there are records of them."""
    for name in figures:
        try:
            picture, _ = make(name, out, results=results)
        except RecordError as error:
            print(f"No figure {name!r}: {error}")
            continue
        print(f"\nFigure: {picture}. Look: {FIGURES[name].look}", flush=True)
