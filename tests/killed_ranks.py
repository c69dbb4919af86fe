"""A program for the tests: ranks under torchrun's agent, of which one is killed again and again.

The agent starts all ranks again, and they go on from the last checkpoint; at the end there are the
records and models of a run that nobody disturbed. Run as: python killed_ranks.py FOLDER KILLS
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from dcgraph.experiments.engine import loop
from dcgraph.experiments.engine.checkpoint import load
from dcgraph.experiments.engine.ranks import ONE_RANK, started_ranks
from parity import QUICK
from training_on_ranks import left_in, run

REPLICAS = [replace(QUICK, epochs=40, evaluations=4, seed=seed) for seed in range(3)]
RANKS = 2


def rank(place: str) -> None:
    """One of the ranks, from its start to its end."""
    torch.set_num_threads(1)
    loop._LONGEST_RUN = 1  # as many moments as there are
    assert loop.train.__kwdefaults__ is not None
    loop.train.__kwdefaults__["save_every"] = 0.0
    alive = Path(place) / f"rank-{os.environ['RANK']}.pid"
    alive.write_text(str(os.getpid()))
    with started_ranks() as ranks:
        run(Path(place) / "found", REPLICAS, ranks)


def step_in(place: Path) -> int:
    """How far the checkpoint is."""
    for path in (place / "found" / "work").glob("*.pt"):
        return int(json.loads(load(path)["progress"])["step"])
    return 0


def kill(
    place: Path, kills: int, done: threading.Event, killed: list[int], steps: list[int]
) -> None:
    """One of the ranks again and again: while they start, or when they have got further."""
    rng = random.Random(0)
    while len(killed) < kills:
        if rng.random() < 0.4:
            done.wait(rng.uniform(0.05, 0.9))
        else:
            before = step_in(place)
            while step_in(place) <= before and not done.wait(0.01):
                pass
            done.wait(rng.uniform(0.0, 0.2))
        if done.is_set():
            break
        which = rng.randrange(RANKS)
        try:
            pid = int((place / f"rank-{which}.pid").read_text())
            os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError):  # between two lives
            continue
        killed.append(which)
        steps.append(step_in(place))
        (place / f"rank-{which}.pid").unlink(missing_ok=True)


def main(place: Path, kills: int) -> None:
    multiprocessing.set_forkserver_preload(["training_on_ranks"])  # which imports all there is
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=RANKS, run_id="killed", rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", start_method="forkserver", monitor_interval=0.05,
        max_restarts=10 * kills,
    )  # fmt: skip
    run(place / "undisturbed", REPLICAS, ONE_RANK)
    done, killed, steps = threading.Event(), list[int](), list[int]()
    killer = threading.Thread(target=kill, args=(place, kills, done, killed, steps))
    killer.start()
    began = time.monotonic()
    try:
        elastic_launch(config, rank)(str(place))
    finally:
        done.set()
        killer.join()
    equal = left_in(place / "found") == left_in(place / "undisturbed")
    seconds = round(time.monotonic() - began, 1)
    report = {
        "kills": len(killed), "ranks": sorted(set(killed)), "steps": steps, "equal": equal,
        "seconds": seconds,
    }  # fmt: skip
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
