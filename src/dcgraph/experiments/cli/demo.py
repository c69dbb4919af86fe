"""``dcgraph demo``: the point of the paper on a laptop, in about two minutes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..engine.jobs import Job
from ..engine.memory import keep_freed_memory
from ..engine.metrics import Metric
from ..engine.records import read_probes, read_record
from .parsing import CommandError
from .progress import show_progress

_FIRST_SEED = 200  # fresh: the setting was tuned on other seeds


def demo(*, seeds: int = 10, out: Path = Path("runs/demo")) -> None:
    """Train a chain with and without the method.

    Three handwritten digits from 0 to 4 come in, their sum is asked for.
    The models see images and sums, never digits: a chain of discrete steps.
    Takes about two minutes on 2 CPU cores; a second call shows it again.

    Args:
        seeds: models with the paper's two methods, and as many without.
        out: folder of the run.
    """
    if seeds < 1:
        raise CommandError(f"seeds={seeds}, but at least 1 is needed.", 2)
    # Start-up time: all of these need torch.
    from ..engine.runs import perform
    from ..report import Replica, write_report
    from ..tasks.addition.commands import Commands
    from ..tasks.addition.settings import DEMO
    from ..tasks.addition.task import Addition

    keep_freed_memory()
    ways = {
        "with TempMatch and DropRes": DEMO,
        "without": replace(DEMO, tempmatch=False, dropres=False),
    }
    jobs: dict[str, list[Job]] = {}
    for (way, settings), folder in zip(ways.items(), (out / "with", out / "without"), strict=True):
        jobs[way] = [
            Job(
                replace(settings, seed=seed),
                folder / "records" / f"seed-{seed}.json",
                folder / "models" / f"seed-{seed}.safetensors",
            )
            for seed in range(_FIRST_SEED, _FIRST_SEED + seeds)
        ]
    print(f"Training {2 * seeds} models that add three digits, as one population ...", flush=True)
    everything = [job for way in jobs.values() for job in way]
    for _ in perform(Addition(), everything, out / "checkpoints", callbacks=show_progress):
        pass
    print("\nSums right on the test images, in per cent; every choice hard; a column per seed:\n")
    accuracy = {
        way: [100 * (read_record(job.record).value(Metric("accuracy")) or 0.0) for job in some]
        for way, some in jobs.items()
    }
    for way, values in accuracy.items():
        mean = sum(values) / len(values)
        print(f"{way:>27}: " + " ".join(f"{v:3.0f}" for v in values) + f"   mean {mean:.0f}")
    both, neither = accuracy.values()
    ahead = sum(one > other for one, other in zip(both, neither, strict=True))
    print(f"\nThe method was ahead in {ahead} of {seeds}. What its best model reads:\n")
    print(Commands(Addition()).predict(model=out / "with", count=2))
    page = out / "report.html"
    write_report(
        page,
        Addition(),
        [
            Replica(way, read_record(job.record), read_probes(job.record), job.model)
            for way, some in jobs.items()
            for job in some
        ],
        title="dcgraph demo: three digits, their sum",
        command="dcgraph demo" + ("" if seeds == 10 else f" --seeds {seeds}"),
    )
    print(f"\nThe whole story is in {page}: open it in a browser.")
    print(f"Records and models: {out}. Next: dcgraph --help, and docs/addition.md.", flush=True)
