"""ListOps: from `[MAX 2 9 [MIN 4 7 ] 0 ]` to 9, with the parse tree and the operators learned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ...engine.metrics import Metric, Metrics
from ...engine.panels import Panel
from ...engine.settings import Settings
from ...engine.step import set_decode
from ...engine.task import Batch, Data, Execution, Task
from . import panels
from .baselines import NearestOperator, Sequence, StateTree
from .commands import Commands
from .data import sets
from .decoding import measure
from .model.edges import Counters, Edges, TwoLSTMs
from .model.latent_tree import LatentTree
from .settings import BEST, PAPER, ListOpsSettings

_DATA_SEED = 0
_COUNTERS = 4


class ListOps(Task[ListOpsSettings]):
    name: ClassVar[str] = "listops"
    settings: ClassVar[type[Settings]] = ListOpsSettings
    presets: ClassVar[Mapping[str, Settings]] = {"paper": PAPER, "best": BEST}

    def data(self, settings: ListOpsSettings, data_dir: Path | None = None) -> Data:
        if settings.expressions == "short":
            return sets.short_data(_DATA_SEED)
        return sets.as_data(_DATA_SEED)

    def model(self, settings: ListOpsSettings) -> nn.Module:
        s = settings
        if s.model == "lstm":
            return Sequence(s.dim)
        if s.model == "nearest_operator":
            return NearestOperator()
        edges = Edges(
            _encoder(s) if s.edges == "learned" else None,
            parents=s.parents,
            silent_root=s.silent_root,
            earlier=s.earlier,
            senders=s.senders,
            structure=s.prior,
            estimator=s.estimator,
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
            estimator=s.estimator,
        )

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, " examples"]:
        return F.cross_entropy(self._answers(model, batch), batch["label"], reduction="none")

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Float[Tensor, " examples"]]:
        right = self._answers(model, batch).argmax(-1) == batch["label"]
        return {"accuracy": right.float()}

    def _answers(self, model: nn.Module, batch: Batch) -> Float[Tensor, "examples 10"]:
        answers: Tensor = model(batch["tokens"], batch["lengths"], batch["parents"])
        return answers

    def final_metrics(
        self,
        model: nn.Module,
        settings: ListOpsSettings,
        data: Data,
        calibration: Mapping[str, float],
    ) -> Metrics:
        """Answers, edges and intermediate values on all test sets, decoded both ways."""
        found: Metrics = {}
        for decoder in ("argmax", "sample"):
            set_decode(model, decoder)
            for name in (each for each in sets.TESTS if each in data.splits):
                measured = measure(model, data, name, sets.rounds_for(name))
                found |= {Metric(what, name, decoder): share for what, share in measured.items()}
        set_decode(model, "argmax")
        return found

    def execution(self, settings: ListOpsSettings) -> Execution:
        # As the paper's code. Argmax would let the root of its model send to itself.
        return Execution(monitor_decoder=settings.decode)

    def panels(self, model: nn.Module, settings: ListOpsSettings, data: Data) -> tuple[Panel, ...]:
        return panels.of_model(model, data)

    def commands(self) -> Mapping[str, Callable[..., str | Iterator[str]]]:
        return Commands(self).by_name()


def _encoder(settings: ListOpsSettings) -> nn.Module:
    if settings.encoder == "lstm":
        return TwoLSTMs(settings.dim)
    return Counters(
        _COUNTERS, nearest=settings.encoder != "counters", ternary=settings.encoder == "ternary"
    )
