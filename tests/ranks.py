"""Programs that run on several ranks, and how tests run them: ``results = run(names, world)``.

A name is that of a function here, or in another module of the tests: ``module.function``.

As a script it is one rank: ``python ranks.py RANK WORLD FOLDER PROGRAM ...``.
"""

from __future__ import annotations

import copy
import gc
import importlib
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import dcgraph as dc
from models import Adder

Found = dict[str, Any]


def run(programs: Collection[str], world: int, folder: Path) -> list[Found]:
    """Run programs one after the other on so many ranks; what each rank has found."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix="store-") as unused:
        store = unused.name  # with what is left of an earlier run the ranks would meet nobody
    environment = os.environ | {
        "RANKS_STORE": store,
        "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "tests",
        "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",
    }  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, str(rank), str(world), str(folder), *programs],
            env=environment
            | {"PYTHONPATH": os.pathsep.join(sys.path), "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        errors = [rank.communicate(timeout=240)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert not any(rank.returncode for rank in ranks), "\n".join(errors)
    return [torch.load(folder / f"{rank}.pt") for rank in range(world)]


def draws() -> Found:
    """Everything that is random, in the order of a program that seeds all ranks alike."""
    logits, u = torch.zeros(50, 40), torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    large = dc.Discrete(8, 5000, residual="none")
    tree = dc.structures.TreeEdges("arborescence")
    population = dc.Population(lambda: dc.Discrete(8, 5), range(2))
    for model in (large, tree, population):
        dc.Dials.constant(model, alpha=0.5)

    def gates(gate: Any) -> Tensor:
        ones = torch.ones(16, 4, 8)
        return torch.stack(
            [dc.drop_residual(0 * ones, ones, 0.5, gate=gate)[:, :, :2] for _ in range(20)]
        )

    def drawn(f: Callable[[], Tensor]) -> Tensor:
        torch.manual_seed(7)
        with torch.no_grad():
            return f()

    own: dict[str, Callable[[], Tensor]] = {
        "few": lambda: dc.gumbel_softmax(logits[0], 1.0, beta=1.0),
        "many": lambda: dc.gumbel_softmax(logits),
        "hard": lambda: dc.gumbel_softmax(logits, hard=True),
        "sample": lambda: dc.sample(logits),
        "gumbel": lambda: dc.gumbel([50, 400]),
        "padded": lambda: dc.Categorical().train()(logits, rows=torch.arange(50) < 25),
        "distribution": lambda: dc.OneHotCategorical(logits).sample(),
        "mix": lambda: dc.mix(u, large.codebook),
        "large": lambda: large(u),
        "decode": lambda: dc.Categorical(decode="sample").eval()(logits),
        "decode large": lambda: dc.Discrete(8, 5000, decode="sample").eval()(u),
        "tree": lambda: tree(torch.zeros(20, 6, 6)),
        "drawn tree": lambda: tree.eval()(torch.zeros(20, 6, 6)),
        "population": lambda: population(u),
        "compiled": lambda: torch.compile(dc.gumbel_softmax, backend="aot_eager")(logits),
        "call": lambda: gates("call"),
        "example": lambda: gates("example"),
        "vector": lambda: gates("vector"),
        "element": lambda: gates("element"),
    }
    tree.decode = "sample"
    found: Found = {name: drawn(f) for name, f in own.items()}
    generator = torch.Generator().manual_seed(3)
    found["by a generator"] = dc.gumbel([50], generator=generator)
    return found


def batch(step: int, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    a, b = torch.randn(2, 16, 6, generator=generator)
    return a, b, torch.randint(5, (16,), generator=generator)


class Run:
    """A training run in plain DDP that can be cut and resumed."""

    def __init__(self, **options: Any) -> None:
        torch.manual_seed(0)  # alike on all ranks
        self.model = DistributedDataParallel(Adder(), **options)
        self.dials = dc.Dials(tau=2.0, beta=dc.temp_match(2.0, 0.1), alpha=dc.linear(0, 1, 10))
        self.dials.attach(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def train(self, steps: range, does_step: bool = True) -> None:
        for step in steps:
            a, b, total = batch(step, dist.get_rank())
            F.cross_entropy(self.model(a, b), total).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            if does_step:
                self.dials.step()

    def save(self) -> Found:
        own = self.model.module, self.optimizer, self.dials
        return {
            "states": copy.deepcopy([one.state_dict() for one in own]),
            "random": torch.get_rng_state(),  # of this rank
        }

    def load(self, saved: Found) -> None:
        own: Any = self.model.module, self.optimizer, self.dials
        for one, state in zip(own, saved["states"], strict=True):
            one.load_state_dict(state)
        torch.set_rng_state(saved["random"])

    def weights(self) -> Tensor:
        return nn.utils.parameters_to_vector(self.model.parameters()).detach().clone()


def ddp() -> Found:
    whole = Run()
    whole.train(range(20))
    weights, dials = whole.weights(), whole.dials.values()
    first = Run()
    first.train(range(10))
    saved = first.save()
    second = Run()
    second.load(saved)
    second.train(range(10, 20))
    other = Run(broadcast_buffers=False)  # dials need no broadcast
    other.train(range(20))
    return {
        "weights": weights,
        "dials": list(dials.values()),
        "resumed": second.weights(),
        "without broadcast": other.weights(),
    }


def lightning() -> Found:
    """A run in Lightning, resumed with as many ranks."""
    import pytorch_lightning as pl

    from dcgraph.frameworks.lightning import DialsCallback

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Adder()

        def training_step(self, step: int, index: int) -> Tensor:
            a, b, total = batch(int(step), dist.get_rank())
            return F.cross_entropy(self.model(F.dropout(a, 0.1), b), total)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    file = Path(sys.argv[3]) / "half.ckpt"

    def fit(epochs: int, resume: Path | None = None, save: bool = False) -> Tensor:
        torch.manual_seed(0)
        module, callback = Module(), DialsCallback(Run().dials)
        torch.manual_seed(dist.get_rank())
        trainer = pl.Trainer(
            max_epochs=epochs, callbacks=[callback], accelerator="cpu", devices=2, strategy="ddp",
            logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(module, torch.utils.data.DataLoader(range(8)), ckpt_path=resume)  # type: ignore[arg-type]
        if save:
            trainer.save_checkpoint(file)
        return nn.utils.parameters_to_vector(module.parameters()).detach().clone()

    expected, _ = fit(4), fit(2, save=True)
    own = torch.load(file, weights_only=True)["callbacks"]["DialsCallback"]["random"]
    return {
        "weights": expected,
        "resumed": fit(4, file),
        "random states differ": not torch.equal(own[0][0], own[1][0]),
        "file": str(file),
    }


def forgetful() -> Found:
    """Rank 1 does not step its dials."""
    said = []
    for options in ({}, {"broadcast_buffers": False}):
        forgets = Run(**options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            forgets.train(range(130), does_step=dist.get_rank() != 1)
        said += [str(one.message) for one in caught]
    careful = Run()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        careful.train(range(130))
    return {"said": said}


def main() -> None:
    rank, world, folder, *programs = sys.argv[1:]
    dist.init_process_group(
        "gloo",
        init_method=f"file://{os.environ['RANKS_STORE']}",
        rank=int(rank),
        world_size=int(world),
    )
    found: Found = {}
    for program in programs:
        module, _, name = program.rpartition(".")
        own = vars(importlib.import_module(module)) if module else globals()
        found |= {program: own[name]()}
    torch.save(found, Path(folder) / f"{rank}.pt")
    dist.barrier()
    gc.collect()  # what is in a cycle may hold the group, whose threads then outlive Python
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
