"""ListOps: from `[MAX 2 9 [MIN 4 7 ] 0 ]` to 9, with the parse tree and the operators learned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar, cast

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ....nodes import Decode
from ...engine.panels import Exhibit
from ...engine.settings import Settings
from ...engine.step import set_decode
from ...engine.task import Batch, Data, Task
from . import panels
from .baselines import Sequence, StateTree
from .commands import Commands
from .data import sets
from .decoding import measure
from .model.edges import Counters, Edges, TwoLSTMs
from .model.latent_tree import LatentTree
from .settings import BEST, PAPER, ListOpsSettings

_DATA_SEED = 0
_COUNTERS = 4


class ListOps(Task):
    name: ClassVar[str] = "listops"
    settings: ClassVar[type[Settings]] = ListOpsSettings
    presets: ClassVar[Mapping[str, Settings]] = {"paper": PAPER, "best": BEST}

    def data(self, settings: Settings, data_dir: Path | None = None) -> Data:
        return sets.as_data(_DATA_SEED)

    def model(self, settings: Settings) -> nn.Module:
        s = cast(ListOpsSettings, settings)
        if s.model == "lstm":
            return Sequence(s.dim)
        edges = Edges(
            _encoder(s) if s.edges == "learned" else None,
            parents=s.parents,
            silent_root=s.silent_root,
            earlier=s.earlier,
            senders=s.senders,
            structure=s.prior,
        )
        if s.model == "states":
            return StateTree(edges, s.dim, rounds=s.rounds, dropout=s.dropout)
        return LatentTree(
            edges,
            s.dim,
            rounds=s.rounds,
            restart=s.restart,
            residual=s.residual,
            gate=s.gate,
            dropout=s.dropout,
            masks=s.masks,
        )

    def inputs(self, settings: Settings, shared: Batch, rows: Batch, training: bool) -> Batch:
        return {
            "tokens": rows["tokens"].long(),
            "lengths": rows["length"],
            "parents": rows["parents"].long(),
            "label": rows["label"],
        }

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, " examples"]:
        return F.cross_entropy(self._answers(model, batch), batch["label"], reduction="none")

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Float[Tensor, " examples"]]:
        right = self._answers(model, batch).argmax(-1) == batch["label"]
        return {"accuracy": right.float()}

    def _answers(self, model: nn.Module, batch: Batch) -> Float[Tensor, "examples 10"]:
        answers: Tensor = model(batch["tokens"], batch["lengths"], batch["parents"])
        return answers

    def chosen_by(self, settings: Settings) -> Decode:
        # As the paper's code. Argmax would let the root of its model send to itself.
        return cast(ListOpsSettings, settings).decode

    def readout(self, model: nn.Module, settings: Settings, data: Data) -> dict[str, float]:
        """Task, edges and intermediate values on all test sets, decoded both ways."""
        numbers: dict[str, float] = {}
        for decode in ("argmax", "sample"):
            set_decode(model, decode)
            for name in (
                "test",
                *sets.DEEPER,
                *(s for s in data.splits if s.startswith("critical")),
            ):
                measured = measure(model, data, name, sets.rounds_for(name))
                numbers |= {f"{name} {what}/{decode}": value for what, value in measured.items()}
        set_decode(model, "argmax")
        return numbers

    def exhibits(self, model: nn.Module, settings: Settings, data: Data) -> tuple[Exhibit, ...]:
        return panels.of_model(model, data)

    def commands(self) -> Mapping[str, Callable[..., str | Iterator[str]]]:
        return Commands(self).by_name()


def _encoder(settings: ListOpsSettings) -> nn.Module:
    if settings.encoder == "lstm":
        return TwoLSTMs(settings.dim)
    return Counters(
        _COUNTERS, nearest=settings.encoder != "counters", ternary=settings.encoder == "ternary"
    )
