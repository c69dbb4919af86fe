"""A codebook divided over ranks: equal to one process, its time, and its bytes on the wire.

    python benchmarks/sharded.py --ranks 1 2           # measure on the CPU, and on CUDA
    python benchmarks/sharded.py --table               # the records as a table

All ranks are on one machine, on CUDA on one GPU, and reduce by gloo, through the memory of the CPU:
that shows what is computed and sent, not how fast several GPUs would be. On a CPU a rank has one
thread. A run takes half a minute on 2 CPU cores. On a GPU it was never run to its end; tests show
there that the ranks find what one process finds. It writes benchmarks/results/sharded-DEVICE.json.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from common import Record, main, markdown, records, stopwatch
from torch import Tensor
from torch.multiprocessing.spawn import spawn

import dcgraph as dc
from dcgraph.distributed import shard_rows

TAU, BETA = 4.0, 2.0
SIZES = {"cpu": (200_000, 100, 64), "cuda": (1_000_000, 512, 64)}
"""Rows of the codebook, queries, and their width."""
TASKS = ("mix", "mix, hard", "cross_entropy", "choose")
SECONDS, STEPS = 1.0, 20
"""Of measuring one task: about so long, at most so many steps."""
_WORDS = 64  # of what ranks tell each other before a call, which is not counted

Call = Callable[[Tensor, Tensor, Tensor, "dist.ProcessGroup | None"], Tensor]

CALLS: dict[str, Call] = {
    "mix": lambda q, c, _, group: dc.mix(q, c, TAU, beta=BETA, group=group),
    "mix, hard": lambda q, c, _, group: dc.mix(q, c, TAU, beta=BETA, hard=True, group=group),
    "cross_entropy": lambda q, c, t, group: dc.codebook.cross_entropy(q, c, t, TAU, group=group),
    "choose": lambda q, c, _, group: dc.codebook.choose(q, c, beta=BETA, group=group)[1],
}


def formula(task: str, queries: int, dim: int) -> int:
    """Bytes that a rank puts into reductions and broadcasts in one step, forward and backward."""
    each = {
        "mix": 16 + 8 * dim,
        "mix, hard": 24 + 8 * dim,
        "cross_entropy": 12 + 4 * dim,
        "choose": 16 + 4 * dim,
    }
    return queries * each[task]


@contextmanager
def wire() -> Iterator[list[int]]:
    """Bytes of each collective operation inside."""
    seen: list[int] = []

    def counting(name: str) -> Any:
        original = getattr(dist, name)

        def counted(tensor: Tensor, *given: Any, **more: Any) -> Any:
            if tensor.shape != (dist.get_world_size(), _WORDS):
                seen.append(tensor.numel() * tensor.element_size())
            return original(tensor, *given, **more)

        return mock.patch.object(dist, name, counted)

    with counting("all_reduce"), counting("broadcast"):
        yield seen


def inputs(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The same on every rank: queries, the whole codebook, targets."""
    n, queries, dim = SIZES[device.type]
    generator = torch.Generator(device).manual_seed(0)
    query = torch.randn(queries, dim, device=device, generator=generator) / dim**0.25
    codebook = torch.randn(n, dim, device=device, generator=generator) / dim**0.25
    target = torch.randint(n, (queries,), device=device, generator=generator)
    return query, codebook, target


def step(
    task: str, query: Tensor, codebook: Tensor, target: Tensor, group: Any, seed: int = 0
) -> tuple[Tensor, ...]:
    """The values, and the gradients of queries and codebook."""
    torch.manual_seed(seed)  # the first rank draws the keys of the noise
    v = CALLS[task](query, codebook, target, group)
    if task == "choose":
        return (v.detach(),)
    return (v.detach(), *torch.autograd.grad(v, (query, codebook), torch.ones_like(v)))


def rank_of(rank: int, world: int, device_name: str, folder: str) -> None:
    """What one rank does; the first one writes down what was found."""
    device = torch.device(device_name)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
    )
    group = dist.group.WORLD
    query, whole, target = inputs(device)
    rows = shard_rows(len(whole), group)
    own = whole[rows.start : rows.stop].clone().requires_grad_()
    query.requires_grad_()
    measured = {task: _timed(task, query, own, target, group, device) for task in TASKS}
    whole.requires_grad_()
    found = []
    for task in TASKS:
        parts = step(task, query, own, target, group)
        expected = [*step(task, query, whole, target, None)]
        if len(expected) == 3:
            expected[2] = expected[2][rows.start : rows.stop]
        error = torch.tensor(max(map(_error, parts, expected)))
        same = torch.tensor(float(torch.equal(parts[0], expected[0])))
        if rank > 0:  # its noise in one process is another one's
            error, same = torch.zeros(()), torch.ones(())
        dist.all_reduce(error, dist.ReduceOp.MAX)
        found.append(
            {
                "task": task,
                "ranks": world,
                "error": error.item(),
                "values_to_the_bit": bool(same),
                "formula": formula(task, *SIZES[device.type][1:]),
                **measured[task],
            }
        )
        dist.barrier()
    if rank == 0:
        torch.save(found, Path(folder) / "found.pt")
    dist.barrier()
    dist.destroy_process_group()


def _timed(
    task: str, query: Tensor, own: Tensor, target: Tensor, group: Any, device: torch.device
) -> Record:
    """Seconds and bytes of a step; all ranks take equally many."""
    for _ in range(2):
        step(task, query, own, target, group)
    with stopwatch(device) as once:
        step(task, query, own, target, group)
    steps = torch.tensor(min(STEPS, max(3, round(SECONDS / once[0]))))
    dist.broadcast(steps, 0)
    times = []
    for seed in range(int(steps)):
        dist.barrier()
        with stopwatch(device) as seconds:
            step(task, query, own, target, group, seed)
        times += seconds
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    with wire() as seen:
        step(task, query, own, target, group)
    peak = torch.cuda.max_memory_allocated() - before if device.type == "cuda" else None
    of_step = {"seconds": median(times), "fastest": min(times)}
    return {**of_step, "bytes": sum(seen), "calls": len(seen), "memory": peak}


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


def measure(device: str, ranks: list[int]) -> Record:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    start, rows = time.perf_counter(), []
    for world in ranks:
        with tempfile.TemporaryDirectory() as folder:
            spawn(rank_of, (world, device, folder), nprocs=world)
            rows += torch.load(Path(folder) / "found.pt")
    n, queries, dim = SIZES[device]
    size = {"n": n, "queries": queries, "dim": dim}
    return {"size": size, "rows": rows, "seconds": time.perf_counter() - start}


def add_ranks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2], help="how many, in turn")


_HEAD = ["device", "task", "ranks", "fastest step, ms", "bytes a rank", "formula", "largest error"]


def table() -> str:
    """The records as Markdown."""
    rows = []
    for record in records("sharded"):
        for row in record["rows"]:
            exact = row["values_to_the_bit"] and row["task"] == "choose"
            error = "none" if exact else f"{row['error']:.0e}"
            count = [f"{row[name]:,}" for name in ("bytes", "formula")]
            time_of_step = f"{1000 * row['fastest']:.1f}"
            rows.append(
                [record["device"], row["task"], str(row["ranks"]), time_of_step, *count, error]
            )
    return markdown(_HEAD, rows) if rows else "There is no record of it yet."


if __name__ == "__main__":
    main("sharded", __doc__.split("\n")[0], measure, table, add_ranks)
