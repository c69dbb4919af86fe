"""Kills: runs are killed at every kind of moment, go on, and leave what an undisturbed run leaves.

python promises/kills.py; `make kills` does the same. A process that trains kills itself (SIGKILL)
at a chosen moment: before or after the n-th step of training, evaluation or calibration, or at the
n-th time that it opens, syncs, renames or removes a file. What it does with files is seen by an
audit hook, so that nothing in the program has to help. Then `dcgraph train --resume` goes on, is
killed again, and at last ends. All records, probe curves and models must be those of a run that was
never killed, to the last bit; of a record only the seconds may differ.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # for a small graph

from dcgraph.experiments import cli
from dcgraph.experiments.engine import loop
from dcgraph.experiments.engine.evaluation import Evaluator
from dcgraph.experiments.engine.step import Stepper
from promised import markdown, write
from ring_of_paths import write_circle

PHASES = (
    *("plan", "training", "evaluation", "checkpoint", "calibration"),
    *("weights", "probes", "record", "report"),
)
COUNT = 120
"""Kills of a whole run of this program, and at least."""

SUBJECTS: dict[str, list[str]] = {
    "addition": ["small_tasks:FewSums", "--seeds", "2"],
    "paths": [
        *("paths", "--preset", "small", "--dim", "8", "--batch", "24", "--epochs", "4"),
        *("--beam", "2", "--seeds", "2"),
    ],
}

Moment = tuple[str, int]
"""A phase, and which of the moments of it in a process, from 0."""


# In the process that is to be killed


class Moments:
    """Counts the moments of each phase; the process ends at the wanted one."""

    def __init__(self, out: Path, wanted: Moment | None) -> None:
        self.out, self.wanted = str(out.resolve()), wanted
        self.seen = Counter[str]()

    def pass_by(self, phase: str) -> None:
        number = self.seen[phase]
        self.seen[phase] += 1
        if self.wanted == (phase, number):
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Of everything that changes a file of the run."""
        if event == "open":
            if not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        elif event not in ("os.mkdir", "os.rename", "os.remove", "os.rmdir"):
            return
        if isinstance(arguments[0], str | Path) and str(arguments[0]).startswith(self.out):
            self.pass_by(_phase_of_file())

    def around(self, owner: Any, name: str, phase: str) -> None:
        """Before and after every call of a method."""
        inner = getattr(owner, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            self.pass_by(phase)
            found = inner(*arguments, **named)
            self.pass_by(phase)
            return found

        setattr(owner, name, counted)


def _phase_of_file() -> str:
    """What is written now: the file that ``write_atomically`` has been asked for."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "write_atomically":
            path = frame.f_locals["path"]
            plain = "record" if path.parent.name == "records" else "plan"
            return _PHASE_OF.get("".join(path.suffixes[-3:]), plain)
        frame = frame.f_back
    return "checkpoint"  # its folder is removed at the end


_PHASE_OF = {
    ".pt": "checkpoint",
    ".safetensors": "weights",
    ".probes.json.xz": "probes",
    ".html": "report",
}


def _train(words: Sequence[str], out: Path, moments: Moments) -> int:
    """The command, with a checkpoint after every few steps."""
    from dcgraph.experiments.tasks.addition.task import Addition
    from dcgraph.experiments.tasks.paths.task import Paths

    sys.addaudithook(moments.audit)
    sync = os.fsync

    def fsync(file: Any) -> None:
        moments.pass_by(_phase_of_file())
        sync(file)

    setattr(os, "fsync", fsync)  # noqa: B010
    moments.around(Stepper, "run", "training")
    moments.around(Evaluator, "metrics", "evaluation")
    for task in (Addition, Paths):
        moments.around(task, "calibrate", "calibration")
    assert loop.train.__kwdefaults__ is not None
    loop.train.__kwdefaults__["save_every"] = 0.0
    known = (out / "run.json").exists()
    options = [words[0], *_preset(words), "--resume"] if known else list(words)
    return cli.main(["train", *options, "--out", str(out), "--device", "cpu"])


def _preset(words: Sequence[str]) -> list[str]:
    return ["--preset", words[words.index("--preset") + 1]] if "--preset" in words else []


def process(words: Sequence[str], out: Path, wanted: Moment | None, log: Path | None = None) -> int:
    """Train in a process of its own; its exit code, which is negative if it was killed."""
    if (child := os.fork()) == 0:
        code = 99
        try:
            null = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(null, 1)
            os.dup2(null, 2)
            moments = Moments(out, wanted)
            code = _train(words, out, moments)
            if wanted is None:
                (out / "moments.json").write_text(json.dumps(moments.seen))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# In the process that kills


def left_by(out: Path) -> dict[str, Any]:
    """All of a run that must not differ: files by name, records without seconds and version.

    Drafts of a killed process are hidden, and stay for a day.
    """
    found: dict[str, Any] = {}
    for path in sorted(out.glob("[!.]*/[!.]*")):
        if path.name.endswith(".json"):
            found[path.name] = {**json.loads(path.read_text()), "seconds": None, "code": None}
        else:
            found[path.name] = path.read_bytes()
    return found


@dataclass
class Result:
    """What came of the kills of a subject."""

    kills: Counter[str]  # by phase
    runs: int
    differing: list[str]  # runs that left something else, with the moments of their kills


def try_subject(name: str, kills: int, seed: int, home: Path) -> Result:
    """Runs with two kills each, until there are enough; then everything is compared."""
    folder = home / name
    folder.mkdir()
    words = list(SUBJECTS[name])
    if name == "paths":
        (folder / "ring").mkdir()
        words += ["--graph", str(write_circle(folder / "ring"))]
    whole = folder / "whole"
    if process(words, whole, None, folder / "log"):
        raise SystemExit((folder / "log").read_text())
    counts = json.loads((whole / "moments.json").read_text())
    wanted, result = left_by(whole), Result(Counter(), 0, [])
    for number, (first, second) in enumerate(_pairs(counts, random.Random(seed))):
        if result.kills.total() >= kills and set(result.kills) >= set(PHASES):
            break
        out = folder / f"run-{number}"
        codes = []
        for moment in (first, second, None):
            codes.append(process(words, out, moment, folder / "log"))
            if codes[-1] == -signal.SIGKILL and moment is not None:
                result.kills[moment[0]] += 1
            elif codes[-1] == 0:
                break
        result.runs += 1
        if codes[-1] != 0 or left_by(out) != wanted or not (out / "report.html").exists():
            left = left_by(out)
            names = [one for one in {**wanted, **left} if wanted.get(one) != left.get(one)]
            result.differing.append(f"{name}: {first}, {second}: {codes}: {names}")
            shutil.copytree(out, home / f"differing-{name}-{number}", dirs_exist_ok=True)
        shutil.rmtree(out)
    return result


def _pairs(counts: dict[str, int], rng: random.Random) -> Iterator[tuple[Moment, Moment]]:
    """Two moments of a run: the phases in turn, the moments of each spread over it."""

    def of(phase: str, turn: int) -> Moment:
        number = counts[phase]
        step = (0, number - 1)[turn] if turn < 2 else rng.randrange(number)
        return phase, step

    turn = 0
    while True:
        phases = [phase for phase in PHASES if phase in counts]
        for phase in phases:
            yield of(phase, turn), (other := rng.choice(phases), rng.randrange(counts[other]))
        turn += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=COUNT, help="of all subjects, at least")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="keep no record")
    options = parser.parse_args()
    torch.set_num_threads(1)  # a fork has no threads but its own
    began, home = time.monotonic(), Path(tempfile.mkdtemp(prefix="dcgraph-kills-"))
    each = -(-options.kills // len(SUBJECTS))
    found = {name: try_subject(name, each, options.seed, home) for name in SUBJECTS}
    record = {
        "seconds": round(time.monotonic() - began),
        "subjects": {
            name: {"kills": dict(one.kills), "runs": one.runs, "differing": one.differing}
            for name, one in found.items()
        },
    }
    print(json.dumps(record))
    if not options.quick:
        write("kills", record)
    if any(one.differing for one in found.values()):
        raise SystemExit(f"runs differ; see {home}")
    shutil.rmtree(home)


def table(found: dict[str, Any]) -> str:
    """The record as Markdown."""
    names = list(found["subjects"])
    rows = [
        [phase, *(str(found["subjects"][name]["kills"].get(phase, 0)) for name in names)]
        for phase in PHASES
    ]
    total = [str(sum(found["subjects"][name]["kills"].values())) for name in names]
    runs = [str(found["subjects"][name]["runs"]) for name in names]
    bad = [str(len(found["subjects"][name]["differing"])) for name in names]
    return markdown(
        [
            ["killed while at", *names],
            *rows,
            ["all kills", *total],
            ["runs that were killed and ended", *runs],
            ["runs that left something else", *bad],
        ]
    )


if __name__ == "__main__":
    main()
