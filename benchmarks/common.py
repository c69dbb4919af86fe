"""What the benchmarks share: timing in turns, peak memory, a record per device, tables of them."""

from __future__ import annotations

import argparse
import csv
import ctypes
import io
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dcgraph.experiments.engine.files import write_json
from dcgraph.experiments.engine.provenance import code_version

_RESULTS = Path(__file__).parent / "results"

Record = dict[str, Any]

_BLOCK = 0.3  # seconds between two looks at the clock


@dataclass
class Contender:
    """One way of training; ``run`` takes a number of steps, at most an epoch."""

    way: str
    replicas: int
    run: Callable[[int], None]
    setup: float | None = None  # seconds until the first step is done
    precision: str = "float32"  # of products


def main(
    benchmark: str,
    description: str,
    measure: Callable[..., Record],
    table: Callable[[], str],
    extend: Callable[[argparse.ArgumentParser], object] = lambda parser: None,
) -> None:
    """The command line of a benchmark; ``measure`` is given the device.

    Options that ``extend`` adds to the command line are given to it by name.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--table", action="store_true", help="print the records as Markdown")
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    parser.add_argument("--device", nargs="+", choices=devices, default=devices)
    extend(parser)
    options = vars(parser.parse_args())
    shows_table, devices = options.pop("table"), options.pop("device")
    if shows_table:
        print(table())
        return
    for device in devices:
        record = {
            "benchmark": benchmark,
            "code": code_version(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": _machine(device),
            **measure(device, **options),
        }
        path = _RESULTS / f"{benchmark}-{device}.json"
        write_json(path, record, indent=1)
        print(f"wrote {path}")
    print(f"\n{table()}")


def records(benchmark: str) -> list[Record]:
    """The records there are, one per device."""
    return [json.loads(path.read_text()) for path in sorted(_RESULTS.glob(f"{benchmark}-*.json"))]


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table."""
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def csv_of(head: list[str], rows: list[list[Any]]) -> str:
    """A table with all that was measured, for a file; what is None was not."""
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows([head, *rows])
    return lines.getvalue()


GAINS = ["replica-steps against plain", "of it one replica", "of it replication"]
"""Heads of the columns that :func:`gains` fills."""


def gains(row: Record, rows: Sequence[Record]) -> list[str]:
    """How many more steps of a replica than plain, as a product of two factors.

    The first is what one replica gains the same way, by capture and by kernels; the second is what
    the other replicas add. A row without one of a single replica beside it has no factors.
    """
    alike = (one for one in rows if (one["way"], one["replicas"]) == (row["way"], 1))
    single = next((one["speedup"] for one in alike), None)
    cells = [f"{row['speedup']:.2f}x"]
    if single is None:
        return [*cells, "-", "-"]
    return [*cells, f"{single:.2f}x", f"{row['speedup'] / single:.2f}x"]


def steps_of_replicas(rows: Sequence[Record]) -> str:
    """A table of ways to train and of numbers of replicas, all measured on one device."""
    lines = []
    for row in rows:
        setup = "-" if row["setup_s"] is None else f"{row['setup_s']:.1f} s"
        cells = [row["way"], str(row["replicas"]), setup, f"{row['ms_per_step']:.2f}"]
        lines.append([*cells, *gains(row, rows)])
    return markdown(["way", "replicas", "set-up", "ms per step", *GAINS], lines)


def _machine(device: str) -> str:
    if device == "cpu":
        return f"{os.cpu_count()} CPU cores"
    return f"one {torch.cuda.get_device_name().removeprefix('NVIDIA ')}"


@contextmanager
def stopwatch(device: torch.device) -> Iterator[list[float]]:
    """The seconds that the block took, with all that it queued on the device."""
    seconds: list[float] = []
    _wait(device)
    start = time.perf_counter()
    yield seconds
    _wait(device)
    seconds.append(time.perf_counter() - start)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_per_step(
    contenders: Sequence[Contender],
    device: torch.device,
    budget: float,
    longest_block: int,
    warm_up: int = 20,
) -> list[list[float]]:
    """For each contender one time per round, in turns so that a busy moment hits all of them.

    A time is that of a block of steps, of _BLOCK seconds or ``longest_block`` steps.
    """
    steps = []
    for contender in contenders:
        contender.run(warm_up)
        with stopwatch(device) as seconds:
            contender.run(warm_up)
        fitting = round(_BLOCK / seconds[0] * warm_up)
        steps.append(min(max(fitting, 5), longest_block))
    times: list[list[float]] = [[] for _ in contenders]
    stop = time.perf_counter() + budget
    while time.perf_counter() < stop or len(times[0]) < 5:
        for contender, count, own in zip(contenders, steps, times, strict=True):
            with stopwatch(device) as seconds:
                contender.run(count)
            own.append(seconds[0] / count)
    return times


@contextmanager
def peak(device: str) -> Iterator[list[int | None]]:
    """Bytes at most in use inside, beyond those before; None where that cannot be measured."""
    found: list[int | None] = []
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield found
        torch.cuda.synchronize()
        found.append(torch.cuda.max_memory_allocated() - before)
        return
    resets = Path("/proc/self/clear_refs")  # Linux: writing 5 forgets the peak so far
    if not resets.exists():
        yield found
        found.append(None)
        return
    _give_back_freed_memory()
    resets.write_text("5")
    resident = _resident("VmRSS")
    yield found
    found.append(_resident("VmHWM") - resident)


def _give_back_freed_memory() -> None:
    """Else what an earlier run has freed, but the process still has, would not count again."""
    with suppress(OSError, AttributeError):  # there are other C libraries
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])
