"""A program for the tests: trains, is killed at random moments, goes on, until it is done.

Forked children train and save a checkpoint after every few steps; the parent kills each after a
random time, then looks at the checkpoint. Run as: python killed.py FOLDER
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from dcgraph.experiments.engine import Callbacks, train
from dcgraph.experiments.engine.checkpoint import load
from parity import QUICK, Parity

torch.set_num_threads(1)  # a fork has no threads but its own
TASK = Parity()
SETTINGS = replace(QUICK, epochs=60, evaluations=4)
REPLICAS = [replace(SETTINGS, seed=seed) for seed in range(2)]
DATA = TASK.data(SETTINGS)


def step_in(path: Path) -> int:
    return int(json.loads(load(path)["progress"])["step"]) if path.exists() else 0


def child(path: Path, log: Path) -> None:
    def note(evaluation: object) -> None:  # the checkpoint before this evaluation is on the disk
        with log.open("a") as lines:
            lines.write(f"{getattr(evaluation, 'step')}\n")  # noqa: B009

    noting = Callbacks(evaluation=note)
    train(TASK, REPLICAS, DATA, save_to=path, save_every=0.0, resume=True, callbacks=noting)
    os._exit(0)


def wait_for_lines(log: Path, count: int) -> None:
    while log.read_text().count("\n") < count:
        time.sleep(0.001)


def main(folder: Path) -> None:
    path, log = folder / "run.pt", folder / "steps.txt"
    whole = train(TASK, REPLICAS, DATA)
    rng, kills, kept = random.Random(0), 0, True
    while kills < 500:
        log.write_text("")
        pid = os.fork()
        if pid == 0:
            child(path, log)
        if kills < 25:  # short lives; then one that may finish
            wait_for_lines(log, rng.randrange(5))
            time.sleep(rng.uniform(0.0, 0.02))
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if status == 0:
            break
        kills += 1
        evaluated = [int(line) for line in log.read_text().splitlines()]
        # All but the last evaluation had its checkpoint written before the next began.
        kept = kept and (len(evaluated) < 2 or step_in(path) >= evaluated[-2])
    resumed = train(TASK, REPLICAS, DATA, save_to=path, resume=True)
    equal = torch.equal(whole.population.weights, resumed.population.weights)
    equal = equal and whole.curve == resumed.curve and whole.metrics == resumed.metrics
    for leftover in folder.glob(".dcgraph-draft-*"):  # of those who were killed while writing
        shutil.rmtree(leftover)
    report = {"kills": kills, "equal": equal, "lost_at_most_since_last_checkpoint": kept}
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
