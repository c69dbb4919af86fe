"""The same chain in PyTorch Lightning and in plain DDP on two ranks, with and without the method.

    python examples/lightning_and_ddp.py            # about two minutes on 2 CPU cores
    python examples/lightning_and_ddp.py --quick    # some seconds, to see that it runs

Model and task are those of sweep_of_my_model.py. Lightning takes batches of 32, each of the two
ranks batches of 16. All models are tested on the same 2,000 examples, all seeds are shown.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import dcgraph as dc
from dcgraph.frameworks.lightning import DialsCallback
from sweep_of_my_model import BATCH, LR, Sum, examples, loss

RANKS, TAU = 2, 2.0


def both_methods(model: nn.Module, steps: int) -> dc.Dials:
    """For the length of the run: 100 schedule steps."""
    beta, alpha = dc.temp_match(TAU, 0.02), dc.linear(0, 1, 25)
    return dc.Dials(tau=TAU, beta=beta, alpha=alpha, every=max(1, steps // 100))


WAYS: dict[str, Callable[[nn.Module, int], dc.Dials]] = {
    "TempMatch and DropRes": both_methods,
    "plain Gumbel-softmax": lambda model, steps: dc.Dials(tau=TAU, beta=1.0, alpha=1.0),
    "softmax without noise": lambda model, steps: dc.Dials(tau=TAU, beta=0.0, alpha=1.0),
}


def batches(seed: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(1000 + seed)
    while True:
        yield examples(size, draw)


def accuracy(model: nn.Module) -> float:
    x, total = examples(2000, torch.Generator().manual_seed(2))
    return float((model.eval()(x).argmax(-1) == total).float().mean())


class Module(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = Sum()

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        return loss(self.model, *batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), LR)


def in_lightning(way: str, seed: int, steps: int) -> float:
    torch.manual_seed(seed)
    module, callback = Module(), DialsCallback(WAYS[way])  # attached and stepped in fit()
    trainer = pl.Trainer(max_steps=steps, callbacks=[callback], accelerator="cpu", barebones=True)
    trainer.fit(module, batches(seed, BATCH))
    return accuracy(module.model)


def on_this_rank(way: str, seed: int, steps: int) -> float:
    """The plain loop. Seeded alike, ranks still draw noise and gates of their own."""
    torch.manual_seed(seed)
    model = DistributedDataParallel(Sum())
    dials = WAYS[way](model, steps).attach(model)
    optimizer = torch.optim.Adam(model.parameters(), LR)
    data = batches(100 * seed + dist.get_rank(), BATCH // RANKS)
    for _ in range(steps):
        loss(model, *next(data)).backward()
        optimizer.step()
        optimizer.zero_grad()
        dials.step()  # on every rank
    return accuracy(model.module)


def with_torchrun(runs: list[Any]) -> list[float]:
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    with tempfile.NamedTemporaryFile("r") as file:
        asked = ["--rank", json.dumps({"runs": runs, "into": file.name})]
        subprocess.run([sys.executable, *torchrun, __file__, *asked], check=True)
        return list(json.load(file))


def as_rank(runs: list[Any], into: str) -> None:
    dist.init_process_group("gloo")  # torchrun gives each rank one thread
    found = [on_this_rank(*one) for one in runs]
    if dist.get_rank() == 0:
        Path(into).write_text(json.dumps(found))
    dist.destroy_process_group()


def run(quick: bool = False, report: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    steps, seeds = (20, 1) if quick else (2000, 3)
    runs = [(way, seed, steps) for way in WAYS for seed in range(1, seeds + 1)]
    report("Lightning ...")
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    with warnings.catch_warnings(action="ignore"):  # Lightning's: no workers, no logger
        found = [in_lightning(*one) for one in runs]
    report(f"DDP on {RANKS} ranks ...")
    found += with_torchrun(runs)
    rows = [
        {"trainer": trainer, "way": way, "accuracy": [found.pop(0) for _ in range(seeds)]}
        for trainer, way in itertools.product(("Lightning", f"DDP, {RANKS} ranks"), WAYS)
    ]
    return {"steps": steps, "seeds": seeds, "rows": rows}


def table(found: dict[str, Any]) -> str:
    """Hard accuracy of every run, in per cent."""
    lines = ["| trainer | training | mean | each seed |", "|---|---|---|---|"]
    for row in found["rows"]:
        each = [round(100 * value) for value in row["accuracy"]]
        mean = 100 * sum(row["accuracy"]) / len(each)
        lines.append(f"| {row['trainer']} | {row['way']} | {mean:.0f} | {str(each)[1:-1]} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    parser.add_argument("--rank", type=json.loads, help="used by the ranks themselves")
    chosen = parser.parse_args()
    if chosen.rank:
        as_rank(**chosen.rank)
    else:
        print(f"\n{table(run(chosen.quick, report=print))}")


if __name__ == "__main__":
    main()
