"""Limits on a CPU: how much time and memory the largest inputs take, each in a process of its own.

python promises/limits.py; `make limits` does the same. Sizes grow until one takes more than the
time or the memory that it may. What stands in the table was run; nothing is extrapolated.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import dcgraph as dc
from promised import markdown, write

SECONDS = 60.0  # of a size; a larger one is not tried after it
MEMORY = 16 << 30  # bytes


def expression(tokens: int) -> None:
    """`dcgraph predict listops` of an expression of that many tokens, a tree three wide."""
    from dcgraph.experiments.tasks import get_task

    words: list[str] = []

    def grow(count: int) -> None:
        words.append("[MAX")
        if count <= 12:
            words.extend(["1"] * (count - 2))
        else:
            part = (count - 2) // 3
            for size in (part, part, count - 2 - 2 * part):
                grow(size)
        words.append("]")

    grow(tokens)
    for _ in get_task("listops").commands()["predict"]((" ".join(words),)):
        pass


def replicas(count: int) -> None:
    """Training steps of a population of the small addition model, batches of 16 images."""
    from dcgraph.experiments.tasks.addition.settings import DEMO
    from dcgraph.experiments.tasks.addition.task import Addition

    task = Addition()
    population = dc.Population(lambda: task.model(DEMO), seeds=range(count))
    dc.Dials.constant(population)
    optimizer = torch.optim.Adam(population.parameters())
    images, total = torch.rand(16, DEMO.summands, 8, 8), torch.randint(3, (16,))
    for _ in range(3):
        losses = population.map(
            lambda model, x, y: task.loss(model, {"images": x, "total": y}).mean(), images, total
        )
        losses.sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def codebook(rows: int) -> None:
    """`mix` and its gradients for 32 queries of width 64."""
    query = torch.randn(32, 64, requires_grad=True)
    codes = torch.randn(rows, 64).requires_grad_()
    dc.mix(query, codes, tau=8.0).sum().backward()


def triples(count: int) -> None:
    """Reading a graph of text, and three training steps of the path model (dim 32)."""
    import tempfile
    from dataclasses import replace
    from pathlib import Path

    from dcgraph.experiments.tasks.paths.data import load_graph
    from dcgraph.experiments.tasks.paths.settings import SMALL
    from dcgraph.experiments.tasks.paths.task import Paths

    entities = count // 10
    with tempfile.TemporaryDirectory() as folder:
        generator = torch.Generator().manual_seed(0)
        ends = torch.randint(entities, (count, 2), generator=generator).tolist()
        lines = [f"e{head}\tr{k % 20}\te{tail}\n" for k, (head, tail) in enumerate(ends)]
        (Path(folder) / "train.txt").write_text("".join(lines))
        (Path(folder) / "test.txt").write_text("".join(lines[:100]))
        graph = load_graph(folder)
        settings = replace(SMALL, graph=folder)
        model = Paths().model(settings)
        dc.Dials.constant(model)
        optimizer = torch.optim.Adam(model.parameters())
        rows = graph.triples["train"][:64]
        batch = {"source": rows[:, 0], "path": rows[:, 1:2].repeat(1, 2), "target": rows[:, 2]}
        for _ in range(3):
            Paths().loss(model, batch).mean().backward()
            optimizer.step()
            optimizer.zero_grad()


SUBJECTS: dict[str, tuple[Callable[[int], None], str, tuple[int, ...]]] = {
    "expression": (expression, "tokens of an expression read by `predict listops`", (
        100, 1_000, 10_000, 30_000, 100_000)),
    "replicas": (replicas, "models in a population (small addition model)", (
        10, 100, 1_000, 10_000)),
    "codebook": (codebook, "rows of a codebook: `mix` and its gradients, 32 queries of width 64", (
        10_000, 100_000, 1_000_000, 10_000_000)),
    "triples": (triples, "triples of a graph: read, and trained on (a tenth as many entities)", (
        10_000, 100_000, 1_000_000, 5_000_000)),
}  # fmt: skip


def measured(name: str, size: int) -> dict[str, Any] | None:
    """Seconds and peak of the memory, without what importing takes; None where it fails."""
    command = [sys.executable, __file__, "--one", name, str(size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20 * SECONDS)
    if done.returncode:
        print(name, size, done.stderr.strip().splitlines()[-1:], flush=True)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def one(name: str, size: int) -> None:
    run, _, sizes = SUBJECTS[name]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    run(sizes[0])  # imports, and first uses
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    run(size)
    seconds = time.process_time() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps({"size": size, "seconds": round(seconds, 2), "megabytes": grown // 1024}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=2, metavar=("WHAT", "SIZE"))
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if options.one:
        torch.set_num_threads(1)
        one(options.one[0], int(options.one[1]))
        return
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, (_, _, sizes) in SUBJECTS.items():
        rows[name] = []
        for size in sizes:
            found = measured(name, size)
            if found is None:
                rows[name].append({"size": size, "failed": True})
                break
            rows[name].append(found)
            print(name, found, flush=True)
            if found["seconds"] > SECONDS:
                break
    write("limits", {"memory": MEMORY, "subjects": rows})


def table(found: dict[str, Any]) -> str:
    """The record as Markdown."""
    rows = [["what", "size", "seconds of one core", "more memory"]]
    for name, sizes in found["subjects"].items():
        for row in sizes:
            cells = ["does not fit", ""]
            if "failed" not in row:
                cells = [f"{row['seconds']:.1f}", f"{row['megabytes']:,} MB"]
            rows.append([SUBJECTS[name][1], f"{row['size']:,}", *cells])
    return markdown(rows)


if __name__ == "__main__":
    main()
