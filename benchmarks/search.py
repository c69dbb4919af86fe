"""Trials per minute of a search: trials as one population against one at a time, in one run.

    python benchmarks/search.py            # measure on the CPU, and on CUDA where there is one
    python benchmarks/search.py --table    # the records as a table, as in docs/searching.md

The task is that of `dcgraph demo`: three embedded digits and their sum, 5,000 steps. Every way
trains the first trials of the same draws (random, lr and tau) and prunes none. Asking the study,
reporting every evaluation to it and writing the records are in the time. Of some rounds the fastest
counts, for other work on the machine can only make a round slower; on the CPU for the same reason
with one thread. A run takes about five minutes. It writes benchmarks/results/search-DEVICE.json.
"""

from __future__ import annotations

import statistics
import tempfile
from contextlib import closing
from pathlib import Path

import torch
from common import Record, main, markdown, records, stopwatch

from dcgraph.experiments.engine.memory import keep_freed_memory
from dcgraph.experiments.engine.search import Search, search
from dcgraph.experiments.engine.settings import parse_sweep
from dcgraph.experiments.engine.studies import Storage, latest
from dcgraph.experiments.tasks.addition.settings import DEMO
from dcgraph.experiments.tasks.addition.task import Addition

AT_ONCE = {"cpu": (1, 8, 16), "cuda": (1, 8, 64)}
ROUNDS = 5  # in turns, so that a busy moment hits all ways

SWEEPS = [parse_sweep(text, DEMO) for text in ("lr=1e-3..1e-2:log", "tau=1..16:log")]


def seconds_per_trial(at_once: int, device: torch.device) -> float:
    """Of a fresh study, from opening it to the last record."""
    plan = Search(
        task=Addition(),
        settings=DEMO,
        sweeps=SWEEPS,
        sampler="random",
        pruner="none",
        trials=at_once,
        at_once=at_once,
    )
    with tempfile.TemporaryDirectory() as folder, stopwatch(device) as seconds:
        out = Path(folder)
        with closing(Storage(f"sqlite:///{out / 'study.db'}", grace=120)) as storage:
            study = search(plan, storage, "study", out, device=device)
            assert all(trial.value is not None for trial in latest(study))
    return seconds[0] / at_once


def measure(name: str) -> Record:
    keep_freed_memory()
    torch.set_num_threads(1)
    device = torch.device(name)
    times: dict[int, list[float]] = {at_once: [] for at_once in AT_ONCE[name]}
    for _ in range(ROUNDS):
        for at_once, own in times.items():
            own.append(seconds_per_trial(at_once, device))
            print(f"{at_once} at once: {own[-1]:.2f} s per trial", flush=True)
    single = min(times[1])
    rows = [
        {
            "at_once": at_once,
            "trials": ROUNDS * at_once,
            "s_per_trial": sorted(own),
            "trials_per_minute": 60 / min(own),
            "speedup": single / min(own),
        }
        for at_once, own in times.items()
    ]
    return {"rounds": ROUNDS, "threads": torch.get_num_threads(), "rows": rows}


def table() -> str:
    """The records as Markdown."""
    rows = [
        [
            record["device"],
            str(row["at_once"]),
            str(row["trials"]),
            f"{row['trials_per_minute']:.1f}",
            f"{60 / statistics.median(row['s_per_trial']):.1f}",
            f"{row['speedup']:.2f}x",
        ]
        for record in records("search")
        for row in record["rows"]
    ]
    head = ["device", "trials at once", "trials", "trials per minute", "median round"]
    return markdown([*head, "against one at a time"], rows)


if __name__ == "__main__":
    main("search", __doc__.split("\n")[0], measure, table)
