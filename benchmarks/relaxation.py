"""Speed and tail of gumbel_softmax against torch's own, and of a node, as ratios from one run.

    python benchmarks/relaxation.py            # measure on the CPU, and on CUDA where there is one
    python benchmarks/relaxation.py --table    # the records as tables, in docs/speed-relaxation.md

A run takes about a minute on 2 CPU cores. It writes benchmarks/results/relaxation-DEVICE.json.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from common import Record, main, markdown, records
from torch import Tensor

import dcgraph as dc

SHAPES = [(16, 19), (512, 1000), (512, 38_696)]
NODES = [(16, 84, 19), (512, 84, 19), (512, 256, 1000)]
"""Vectors, their width, and categories."""
TAU, BETA = 2.0, 1.0

Relaxation = Callable[[Tensor], Tensor]


def ours(logits: Tensor) -> Tensor:
    return dc.gumbel_softmax(logits, TAU, beta=BETA)


def torchs(logits: Tensor) -> Tensor:
    return F.gumbel_softmax(logits, TAU)


def both_passes(relax: Relaxation, logits: Tensor, weights: Tensor) -> Callable[[], Tensor]:
    """Forward and backward, the whole of it."""

    def run() -> Tensor:
        leaf = logits.detach().requires_grad_()
        return torch.autograd.grad(relax(leaf), leaf, weights)[0]

    return run


def cpu_seconds(runs: dict[str, Callable[[], Tensor]], budget: float) -> dict[str, float]:
    """Median time of each, taken in turns so that a busy moment hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    stop = time.perf_counter() + budget
    while time.perf_counter() < stop or len(times[next(iter(times))]) < 5:
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def cuda_seconds(run: Callable[[], Any], repeats: int = 20, replays: int = 20) -> float:
    """Median time of a replay as a CUDA graph: what the GPU does, without the launches.

    Replays are timed several together, for one of a small shape is shorter than the clock is fine.
    """
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    times: list[float] = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1000 / replays)
    return statistics.median(times)


def measure(device: str) -> Record:
    return measure_cpu() if device == "cpu" else measure_cuda()


def measure_cpu() -> Record:
    rows = []
    for shape in SHAPES:
        logits, weights = torch.randn(shape), torch.randn(shape)
        runs = {
            name: both_passes(relax, logits, weights)
            for name, relax in (("torch", torchs), ("dcgraph", ours))
        }
        seconds = cpu_seconds(runs, budget=10)
        ratio = seconds["torch"] / seconds["dcgraph"]
        rows.append({"shape": shape, "seconds": seconds, "speedup": ratio})
        print(f"CPU {list(shape)}: {ratio:.2f} times as fast as torch")
    nodes = []
    for sizes in NODES:
        runs = nodes_of(*sizes, device="cpu")
        nodes.append(_node_row(sizes, cpu_seconds(runs, budget=10)))
    return {"relaxation": rows, "node": nodes, "tail": tails("cpu", 5)}


def measure_cuda() -> Record:
    big = torch.empty(1 << 29, device="cuda")
    target = torch.empty_like(big)
    bandwidth = 2 * 4 * big.numel() / cuda_seconds(lambda: target.copy_(big))
    del big, target
    rows = []
    for shape in SHAPES:
        logits, weights = (torch.randn(shape, device="cuda") for _ in range(2))
        # Forward reads logits and writes z; backward reads z and dL/dz and writes dL/dlogits.
        floor = 5 * 4 * logits.numel() / bandwidth
        seconds = {}
        for name, relax in (("torch", torchs), ("dcgraph", ours)):
            # Static: a kernel for any shape, which the second shape would get, is slower.
            compiled = torch.compile(relax, fullgraph=True, dynamic=False)
            seconds[f"{name} eager"] = cuda_seconds(both_passes(relax, logits, weights))
            seconds[f"{name} compiled"] = cuda_seconds(both_passes(compiled, logits, weights))
        share = floor / seconds["dcgraph compiled"]
        ratio = seconds["torch compiled"] / seconds["dcgraph compiled"]
        rows.append({"shape": shape, "seconds": seconds, "speedup": ratio, "of_bandwidth": share})
        print(f"CUDA {list(shape)}: {share:.0%} of copy bandwidth, {ratio:.2f} times torch")
    nodes = []
    for sizes in NODES:
        runs = nodes_of(*sizes, device="cuda")
        nodes.append(_node_row(sizes, {name: cuda_seconds(run) for name, run in runs.items()}))
    return {
        "copy_bandwidth": bandwidth,
        "relaxation": rows,
        "node": nodes,
        "tail": tails("cuda", 40),
    }


def nodes_of(rows: int, dim: int, categories: int, device: str) -> dict[str, Callable[[], Tensor]]:
    """A node with its residual, and the three lines that one would write by hand."""
    node = dc.Discrete(dim, categories, gate="example").to(device)
    dc.Dials.constant(node, tau=TAU, beta=BETA, alpha=0.5)
    codebook = node.codebook

    def by_hand(u: Tensor) -> Tensor:
        z = F.gumbel_softmax(u @ codebook.T, TAU)
        kept = torch.rand(len(u), 1, device=device) < 0.5
        return z @ codebook + kept * u

    u, weights = (torch.randn(rows, dim, device=device) for _ in range(2))

    def both(f: Relaxation) -> Callable[[], Tensor]:
        def run() -> Tensor:
            leaf = u.detach().requires_grad_()
            return torch.autograd.grad(f(leaf), (leaf, codebook), weights)[0]

        return run

    return {"by hand": both(by_hand), "dcgraph": both(node)}


def _node_row(sizes: tuple[int, int, int], seconds: dict[str, float]) -> Record:
    ratio = seconds["by hand"] / seconds["dcgraph"]
    print(f"node {list(sizes)}: {ratio:.2f} times as fast as by hand")
    return {"sizes": sizes, "seconds": seconds, "speedup": ratio}


def tails(device: str, repeats: int, categories: int = 10_000_000) -> dict[str, dict[str, float]]:
    """How often the largest of ten million draws is a tie, and how large it gets."""

    def torch_noise() -> Tensor:
        return -torch.empty(categories, device=device).exponential_().log()

    def our_noise() -> Tensor:
        return dc.gumbel([categories], device=device)

    samplers = {
        "torch eager": torch_noise,
        "torch compiled": torch.compile(torch_noise, fullgraph=True),
        "dcgraph eager": our_noise,
        "dcgraph compiled": torch.compile(our_noise, fullgraph=True),
    }
    if device == "cuda":
        samplers["dcgraph kernel"] = kernel_noise(categories)
    found = {}
    for name, draw in samplers.items():
        tops, ties = [], 0
        for _ in range(repeats):
            noise = draw()
            tops.append(noise.max().item())
            ties += int((noise == noise.max()).sum() > 1)
        found[name] = {"draws": repeats, "ties": ties, "largest": max(tops)}
        print(f"{device} {name}: {ties} ties in {repeats} draws, largest {max(tops):.2f}")
    return found


def kernel_noise(categories: int) -> Callable[[], Tensor]:
    from dcgraph.kernels._relaxation import drawn_noise

    def draw() -> Tensor:
        return drawn_noise(torch.randint(1 << 62, (1,), device="cuda"), 1, categories)[0]

    return draw


def table(part: str = "") -> str:
    """The records as Markdown: one of three tables, or all of them."""
    speed, node, tail = [], [], []
    for record in records("relaxation"):
        for row in record["relaxation"]:
            share = f"{row['of_bandwidth']:.0%}" if "of_bandwidth" in row else "-"
            shape = " x ".join(f"{size:,}" for size in row["shape"])
            speed.append([record["device"], shape, f"{row['speedup']:.2f}x", share])
        for row in record.get("node", []):
            vectors, dim, categories = row["sizes"]
            cells = [f"{vectors:,} x {dim}", f"{categories:,}", f"{row['speedup']:.2f}x"]
            node.append([record["device"], *cells])
        for name, seen in record["tail"].items():
            ties = f"{seen['ties']} of {seen['draws']}"
            tail.append([record["device"], name, ties, f"{seen['largest']:.2f}"])
    tables = {
        "speed": markdown(["device", "shape", "against torch", "share of copy bandwidth"], speed),
        "node": markdown(["device", "vectors", "categories", "against three lines by hand"], node),
        "tail": markdown(["device", "sampler", "ties for the largest", "largest value"], tail),
    }
    return tables[part] if part else "\n\n".join(tables.values())


if __name__ == "__main__":
    main("relaxation", __doc__.split("\n")[0], measure, table)
