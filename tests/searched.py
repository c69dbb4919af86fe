"""A program for the tests: workers of one study are killed at random moments, and begun again.

Forked children work on the study, each in a folder of its own, as on several machines; the parent
kills them until enough are dead, then lets the last ones finish. What is found in the study is
printed as JSON. Run as: python searched.py STORAGE FOLDER WORKERS KILLS
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch

from dcgraph.experiments.engine.search import Search, search
from dcgraph.experiments.engine.settings import parse_sweep
from dcgraph.experiments.engine.studies import Storage, latest
from parity import QUICK, TASK

torch.set_num_threads(1)  # a fork has no threads but its own
SETTINGS = replace(QUICK, epochs=40, evaluations=1)
PLAN = Search(
    task=TASK,
    settings=SETTINGS,
    sweeps=[parse_sweep("lr=1e-4..1e-1:log", SETTINGS), parse_sweep("tau=1,2,4", SETTINGS)],
    trials=16,
    at_once=3,
)
GRACE = 4  # seconds


def child(url: str, folder: Path) -> None:
    code = 1
    try:
        storage = Storage(url, GRACE)
        search(PLAN, storage, "study", folder)
        storage.close()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def begin(url: str, folder: Path) -> int:
    pid = os.fork()
    if pid == 0:
        child(url, folder)
    return pid


def main(url: str, folder: Path, count: int, kills: int) -> None:
    rng = random.Random(0)
    folders = [folder / f"worker-{k}" for k in range(count)]
    alive = {begin(url, place): place for place in folders}
    failed, killed = 0, 0
    while killed < kills:
        at_work: list[int] = []
        while killed % 3 and not at_work:  # of three one dies at any moment, such as its start
            time.sleep(0.02)
            at_work = [p for p, place in alive.items() if any(place.glob("populations/*/*.pt"))]
        time.sleep(rng.uniform(0.0, 0.5))
        pid = rng.choice(sorted(at_work or alive))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        failed += os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0
        killed += os.WIFSIGNALED(status)
        place = alive.pop(pid)
        if os.WIFEXITED(status):  # it was done before
            break
        alive[begin(url, place)] = place
    for pid in alive:
        _, status = os.waitpid(pid, 0)
        failed += status != 0
    storage = Storage(url, GRACE)
    study = storage.study("study")
    trials = study.get_trials(deepcopy=False)
    successors = Counter(
        history[-1] for t in trials if (history := t.system_attrs.get("retry_history"))
    )
    finished = Counter(
        t.system_attrs.get("failed_trial", t.number)
        for t in trials
        if t.state.name in ("COMPLETE", "PRUNED")
    )
    own = latest(study)
    report = {
        "kills": killed,
        "failed": failed,
        "trials": len(own),
        "finished": sum(trial.state.name in ("COMPLETE", "PRUNED") for trial in own),
        "finished_twice": sum(times > 1 for times in finished.values()),
        "lost": sum(t.state.name == "FAIL" and t.number not in successors for t in trials),
        "retried": sum(successors.values()),
        "retried_twice": sum(times > 1 for times in successors.values()),
        "records": len({path.name for path in folder.glob("*/records/*.json")}),
    }
    storage.close()
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
