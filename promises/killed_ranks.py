"""Killed ranks: of two that train together under torchrun's agent one is killed again and again.

    python promises/killed_ranks.py                  # twenty kills, one to three minutes
    python promises/killed_ranks.py --kills 5 --quick    # and no record

The agent starts both ranks again, and they go on from the last checkpoint. At the end all records
and models must be those of a run that nobody disturbed, to the last bit; of a record only the
seconds and the number of ranks may differ. `make kills` runs it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from dcgraph.experiments.engine import loop
from dcgraph.experiments.engine.checkpoint import load
from dcgraph.experiments.engine.ranks import ONE_RANK, PATIENCE, started_ranks
from parity import QUICK
from promised import markdown, write
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="write no record")
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp())
    # Of this machine only; and a rank that waits for a killed one gives up soon.
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", PATIENCE: "4"}
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # of the fork server
    multiprocessing.set_forkserver_preload(["training_on_ranks"])  # which imports all there is
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=RANKS, run_id="killed", rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", start_method="forkserver", monitor_interval=0.05,
        max_restarts=100 * options.kills,
    )  # fmt: skip
    run(place / "undisturbed", REPLICAS, ONE_RANK)
    done, killed, steps = threading.Event(), list[int](), list[int]()
    killer = threading.Thread(target=kill, args=(place, options.kills, done, killed, steps))
    killer.start()
    began = time.monotonic()
    try:
        elastic_launch(config, rank)(str(place))
    finally:
        done.set()
        killer.join()
    found = {
        "kills": len(killed),
        "of each rank": [killed.count(one) for one in range(RANKS)],
        "steps": steps,
        "equal": left_in(place / "found") == left_in(place / "undisturbed"),
        "seconds": round(time.monotonic() - began),
    }
    print(json.dumps(found))
    if not options.quick:
        write("killed_ranks", found)
    if not found["equal"]:
        raise SystemExit(f"what is left differs; see {place}")
    shutil.rmtree(place)


def table(found: dict[str, Any]) -> str:
    """The record as Markdown."""
    reached = f"{min(found['steps'])} to {max(found['steps'])}"
    rows = [
        ["kills of rank 0", str(found["of each rank"][0])],
        ["kills of rank 1", str(found["of each rank"][1])],
        ["step of the checkpoint at a kill", reached],
        ["left what an undisturbed run leaves", "yes" if found["equal"] else "no"],
    ]
    return markdown([["killed while ranks train together", ""], *rows])


if __name__ == "__main__":
    main()
