"""The same chain in PyTorch Lightning and in plain DDP on two ranks, with and without the method.

    python examples/lightning_and_ddp.py            # about two minutes on 2 CPU cores
    python examples/lightning_and_ddp.py --quick    # some seconds, to see that it runs

The task is that of docs/own-model.md: three noisy measurements come in, each of one of five objects
that stand for 0 to 4, and the label is their sum. Lightning takes batches of 32, each of the two
ranks batches of 16. Everything is tested on 2,000 fresh examples with hard choices; all seeds are
shown, and no setting was chosen by looking at them. This file needs the extra `frameworks`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytorch_lightning as lightning
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

import dcgraph as dc
from dcgraph.frameworks.lightning import DialsCallback

DIM, SYMBOLS, BATCH, LR, RANKS, TAU = 32, 13, 32, 0.003, 2, 2.0


def both_methods(model: nn.Module, steps: int) -> dc.Dials:
    """beta and alpha follow the length of the run: 100 schedule steps."""
    beta, alpha = dc.temp_match(TAU, 0.02), dc.linear(0, 1, 25)
    return dc.Dials(tau=TAU, beta=beta, alpha=alpha, every=max(1, steps // 100))


WAYS: dict[str, Callable[[nn.Module, int], dc.Dials]] = {
    "TempMatch and DropRes": both_methods,
    "plain Gumbel-softmax": lambda model, steps: dc.Dials(tau=TAU, beta=1.0, alpha=1.0),
    "softmax without noise": lambda model, steps: dc.Dials(tau=TAU, beta=0.0, alpha=1.0),
}


class Sum(nn.Module):
    """It knows neither of dials nor of ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, DIM))
        self.symbol = dc.Discrete(DIM, SYMBOLS, gate="example")
        self.first, self.second = (
            nn.Sequential(nn.Linear(2 * DIM, 64), nn.ReLU(), nn.Linear(64, DIM)) for _ in range(2)
        )

    def forward(self, measurements: Tensor) -> Tensor:
        x, y, z = self.symbol(self.encode(measurements))
        xy = self.symbol(self.first(torch.cat([x, y], -1)))
        return self.symbol.logits(self.second(torch.cat([xy, z], -1)))


def examples(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Measurements [3, count, 16] and their sums."""
    objects = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    digits = torch.randint(5, (3, count), generator=generator)
    return objects[digits] + 0.35 * torch.randn(3, count, 16, generator=generator), digits.sum(0)


class Batches(IterableDataset[Any]):
    """Of fresh examples, without end."""

    def __init__(self, seed: int, size: int) -> None:
        self.draw, self.size = torch.Generator().manual_seed(1000 + seed), size

    def __iter__(self) -> Any:
        while True:
            yield examples(self.size, self.draw)


def accuracy(model: nn.Module) -> float:
    x, total = examples(2000, torch.Generator().manual_seed(2))
    with torch.no_grad():
        return (model.eval()(x).argmax(-1) == total).float().mean().item()


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = Sum()

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        return F.cross_entropy(self.model(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), LR)


def in_lightning(way: str, seed: int, steps: int) -> float:
    torch.manual_seed(seed)
    module, callback = Module(), DialsCallback(WAYS[way])  # attached and stepped in fit()
    trainer = lightning.Trainer(
        max_steps=steps, callbacks=[callback], accelerator="cpu", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, DataLoader(Batches(seed, BATCH), batch_size=None))
    return accuracy(module.model)


def on_this_rank(way: str, seed: int, steps: int) -> float:
    """The plain loop. Every rank draws noise and gates of its own, although all are seeded alike."""
    torch.manual_seed(seed)
    model = DistributedDataParallel(Sum())
    dials = WAYS[way](model, steps).attach(model)
    optimizer = torch.optim.Adam(model.parameters(), LR)
    data = iter(Batches(100 * seed + dist.get_rank(), BATCH // RANKS))
    for _ in range(steps):
        x, total = next(data)
        F.cross_entropy(model(x), total).backward()
        optimizer.step()
        optimizer.zero_grad()
        dials.step()  # on every rank
    return accuracy(model.module)


def on_ranks(runs: list[Any], folder: Path) -> list[float]:
    """As torchrun would start this file."""
    (folder / "runs.json").write_text(json.dumps(runs))
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    own = {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, *torchrun, __file__, "--rank", str(folder)]
    subprocess.run(command, check=True, env=os.environ | own)
    return list(json.loads((folder / "found.json").read_text()))


def as_rank(folder: Path) -> None:
    dist.init_process_group("gloo")
    found = [on_this_rank(*one) for one in json.loads((folder / "runs.json").read_text())]
    if dist.get_rank() == 0:
        (folder / "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def run(quick: bool = False, report: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    steps, seeds = (20, 1) if quick else (2000, 3)
    runs = [(way, seed, steps) for way in WAYS for seed in range(1, seeds + 1)]
    report("Lightning ...")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    with warnings.catch_warnings(action="ignore"):  # Lightning's: no workers, no logger
        found = [in_lightning(*one) for one in runs]
    report(f"DDP on {RANKS} ranks ...")
    with tempfile.TemporaryDirectory() as folder:
        found += on_ranks(runs, Path(folder))
    trainers = ["Lightning"] * len(runs) + [f"DDP, {RANKS} ranks"] * len(runs)
    rows = [
        {"trainer": trainer, "way": way, "seed": seed, "accuracy": value}
        for trainer, (way, seed, _), value in zip(trainers, runs * 2, found, strict=True)
    ]
    return {"steps": steps, "seeds": seeds, "rows": rows}


def table(found: dict[str, Any]) -> str:
    """Hard accuracy of every run, in per cent."""
    lines = ["| trainer | training | mean | each seed |", "|---|---|---|---|"]
    for trainer, way in dict.fromkeys((row["trainer"], row["way"]) for row in found["rows"]):
        own = [row for row in found["rows"] if (row["trainer"], row["way"]) == (trainer, way)]
        each = [100 * row["accuracy"] for row in own]
        shown = ", ".join(f"{value:.0f}" for value in each)
        lines.append(f"| {trainer} | {way} | {sum(each) / len(each):.0f} | {shown} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    parser.add_argument("--rank", type=Path, metavar="FOLDER", help="for the ranks themselves")
    chosen = parser.parse_args()
    torch.set_num_threads(1)  # for a model as small as this
    if chosen.rank:
        as_rank(chosen.rank)
    else:
        print(f"\n{table(run(chosen.quick, report=print))}")


if __name__ == "__main__":
    main()
