"""ListOps: from `[MAX 2 9 [MIN 4 7 ] 0 ]` to 9, with the parse tree and the operators learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ...training.settings import Settings, shared
from ...training.step import set_decode
from ...training.task import Batch, Data, Task, fingerprint_of
from .encoders import Counters, TwoLSTMs
from .expressions import Expression
from .model import LatentTree, Sequence
from .sets import DEEPER, DEPTHS, generate, generate_critical
from .tensors import tensors_of

_DATA_SEED = 0
_WIDTHS = (7, 12, 15, 19, 22, 25, 28, 32, 36, 40, 45, 50, 60, 70, 80, 90, 100)
"""Expressions are padded to one of these lengths, so that a population has few shapes."""

_AT_ONCE = 500  # expressions in a read-out


@dataclass(frozen=True, kw_only=True)
class ListOpsSettings(Settings):
    """Settings of the ListOps task."""

    model: Literal["tree", "lstm"] = shared("tree", "ours; or an LSTM without structure")
    edges: Literal["learned", "given"] = shared("learned", "whether the parse tree is given")
    encoder: Literal["lstm", "counters", "ternary"] = shared(
        "lstm", "what scores the edges: two LSTMs; counters that move freely; or by -1, 0, 1"
    )
    counters: int = shared(4, "how many counters")
    parents: Literal["tokens", "operators"] = shared("tokens", "who can be a parent")
    earlier: bool = shared(False, "a parent stands before its child, and the root sends nothing")
    rounds: int = shared(5, "rounds of messages")
    residual: Literal["drop", "always", "weighted"] = shared("drop", "kind of residual")
    gate: Literal["call", "example", "vector"] = shared("call", "what shares a draw of the gate")
    dim: int = shared(60, "width of the states")
    dropout: float = shared(0.1, "dropout of the messages")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rounds", "dim", "counters"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}, but at least 1 is needed.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}, but a share lies in [0, 1).")


PAPER = ListOpsSettings(epochs=100, batch=100, moves=10, evaluations=1, lr=5e-4)


class ListOps(Task):
    name: ClassVar[str] = "listops"
    settings: ClassVar[type[Settings]] = ListOpsSettings
    presets: ClassVar[Mapping[str, Settings]] = {"paper": PAPER}

    def data(self, settings: Settings, data_dir: Path | None = None) -> Data:
        return _generated(_DATA_SEED)

    def model(self, settings: Settings) -> nn.Module:
        s = cast(ListOpsSettings, settings)
        if s.model == "lstm":
            return Sequence(s.dim)
        encoder = (
            TwoLSTMs(s.dim)
            if s.encoder == "lstm"
            else Counters(s.counters, ternary=s.encoder == "ternary")
        )
        return LatentTree(
            encoder if s.edges == "learned" else None,
            s.dim,
            rounds=s.rounds,
            receivers=s.parents,
            earlier=s.earlier,
            residual=s.residual,
            gate=s.gate,
            dropout=s.dropout,
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

    def readout(self, model: nn.Module, settings: Settings, data: Data) -> dict[str, float]:
        """Task, edges and intermediate values on all test sets, decoded both ways."""
        numbers: dict[str, float] = {}
        for decode in ("argmax", "sample"):
            set_decode(model, decode)
            for name in ("test", *DEEPER, *(s for s in data.splits if s.startswith("critical"))):
                rounds = int(name.removesuffix("-long").rpartition("d")[2]) if name != "test" else 5
                measured = measure(model, data, name, max(5, rounds))
                numbers |= {f"{name} {what}/{decode}": value for what, value in measured.items()}
        set_decode(model, "argmax")
        return numbers


@torch.no_grad()
def measure(model: nn.Module, data: Data, split: str, rounds: int) -> dict[str, float]:
    """Accuracy of answers, precision of edges, accuracy of intermediate values, in [0, 1].

    Edges count for all tokens but the root and closing brackets; intermediate values for all
    operators but the root.
    """
    sums = {"task": [0.0, 0.0], "edge": [0.0, 0.0], "inter": [0.0, 0.0]}
    for table in data.tables(split):
        for first in range(0, len(table["label"]), _AT_ONCE):
            rows = {name: tensor[first : first + _AT_ONCE] for name, tensor in table.items()}
            for name, (right, count) in _counts(model, rows, rounds).items():
                sums[name][0] += right
                sums[name][1] += count
    return {name: right / count for name, (right, count) in sums.items() if count}


def _counts(model: nn.Module, rows: Batch, rounds: int) -> dict[str, tuple[float, float]]:
    tokens, parents = rows["tokens"].long(), rows["parents"].long()
    if not isinstance(model, LatentTree):
        answers = model(tokens, rows["length"], parents).argmax(-1)
        return {"task": (float((answers == rows["label"]).sum()), float(len(answers)))}
    edges, values = model.run(tokens, rows["length"], parents, rounds)
    guessed, answers = edges.argmax(-1), values.argmax(-1)
    counted = (parents >= 0) & (tokens != 0)
    inner = (parents >= 0) & (tokens >= 1) & (tokens <= 3)
    right = answers == rows["values"].long()
    return {
        "task": (float((answers[:, 0] == rows["label"]).sum()), float(len(tokens))),
        "edge": (float((guessed == parents)[counted].sum()), float(counted.sum())),
        "inter": (float(right[inner].sum()), float(inner.sum())),
    }


@lru_cache(maxsize=1)
def _generated(seed: int) -> Data:
    sets = generate(seed)
    known = {expression for drawn in sets.values() for expression in drawn}
    sets |= generate_critical(seed, known)
    splits = {
        split: [e for depth in DEPTHS for e in sets[f"{split}-d{depth}"]]
        for split in ("train", "validation", "test")
    }
    others = {name: drawn for name, drawn in sets.items() if not name.startswith(tuple(splits))}
    tables = {name: tables_of(drawn) for name, drawn in (splits | others).items()}
    fingerprint = fingerprint_of(*(table["tokens"] for some in tables.values() for table in some))
    return Data(tables, fingerprint)


def tables_of(expressions: list[Expression]) -> list[Batch]:
    """Expressions of about the same length in a table each."""
    tables, left = [], sorted(expressions, key=len)
    for width in _WIDTHS:
        fitting = [e for e in left if len(e) <= width]
        left = left[len(fitting) :]
        if fitting:
            tables.append(_padded(tensors_of(fitting), width))
    return tables


def _padded(table: Batch, width: int) -> Batch:
    missing = width - table["tokens"].shape[1]
    padding = {"tokens": 0, "parents": -1, "values": -1}
    return {
        name: F.pad(tensor, (0, missing), value=padding[name]) if name in padding else tensor
        for name, tensor in table.items()
    }
