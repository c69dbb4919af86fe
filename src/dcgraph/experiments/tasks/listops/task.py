"""ListOps: from `[MAX 2 9 [MIN 4 7 ] 0 ]` to 9, with the parse tree and the operators learned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ....nodes import Decode
from ...engine.panels import Exhibit
from ...engine.settings import Settings, shared
from ...engine.step import set_decode
from ...engine.task import Batch, Data, Task, fingerprint_of
from .baselines import Sequence, StateTree
from .decoding import Decoder, at_once
from .edges import Edges
from .encoders import Counters, TwoLSTMs
from .expressions import CLOSE, ZERO, Expression
from .model import LatentTree
from .sets import DEEPER, DEPTHS, generate, generate_critical, rounds_for
from .tensors import tensors_of

_DATA_SEED = 0
_WIDTHS = (7, 12, 15, 19, 22, 25, 28, 32, 36, 40, 45, 50, 60, 70, 80, 90, 100)
"""Expressions are padded to one of these lengths, so that a population has few shapes."""


@dataclass(frozen=True, kw_only=True)
class ListOpsSettings(Settings):
    """Settings of the ListOps task."""

    model: Literal["tree", "states", "lstm"] = shared(
        "tree", "ours; or the same without digits as states; or an LSTM"
    )
    edges: Literal["learned", "given"] = shared("learned", "whether the parse tree is given")
    encoder: Literal["lstm", "ternary"] = shared(
        "lstm", "what scores the edges: two LSTMs, or counters that go up, down or stay"
    )
    counters: int = shared(4, "how many counters")
    prior: Literal["one_parent", "arborescence", "spanning_tree"] = shared(
        "one_parent", "a parent for each token; or a tree, with or without direction"
    )
    parents: Literal["tokens", "operators"] = shared("tokens", "who can be a parent")
    earlier: bool = shared(False, "a parent stands before its child, and the root sends nothing")
    senders: Literal["tokens", "values"] = shared(
        "tokens", "who sends to its parent: all tokens, or all but closing brackets"
    )
    rounds: int = shared(5, "rounds of messages")
    restart: bool = shared(False, "a token's value comes from its children's alone")
    residual: Literal["drop", "always", "weighted"] = shared("drop", "kind of residual")
    gate: Literal["call", "example", "vector"] = shared("call", "what shares a draw of the gate")
    dim: int = shared(60, "width of the states")
    dropout: float = shared(0.1, "dropout of the messages")
    masks: Literal["token", "pair"] = shared(
        "token", "what has a dropout mask: a sender and the token it sends to, or each pair"
    )
    decode: Literal["argmax", "sample"] = shared(
        "sample", "how the nodes choose where the best weights are chosen"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rounds", "dim", "counters"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}, but at least 1 is needed.")
        if not self.earlier and self.edges == "learned":
            if self.parents == "operators":
                raise ValueError("parents='operators' needs earlier; add --earlier.")
            if self.senders == "values":
                raise ValueError("senders='values' needs earlier; add --earlier.")
            if self.encoder != "lstm":
                raise ValueError(f"encoder={self.encoder!r} looks back alone; add --earlier.")
        if self.prior != "one_parent" and (self.earlier or self.parents != "tokens"):
            raise ValueError(
                f"prior={self.prior!r} has no rule for parents; leave out earlier and parents."
            )
        if self.prior == "spanning_tree" and self.model == "tree":
            raise ValueError("prior='spanning_tree' has no direction; use --model states.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}, but a share lies in [0, 1).")


PAPER = ListOpsSettings(epochs=100, batch=100, moves=10, evaluations=1, lr=5e-4)
BEST = replace(
    PAPER, epochs=20, lr=2e-3, decay=0.4, average=0.998, tau=2.0, gamma=0.02, alpha_step=0.01,
    encoder="ternary", parents="operators", earlier=True, senders="values", restart=True,
    gate="vector", dropout=0.0, decode="argmax",
)  # fmt: skip


class ListOps(Task):
    name: ClassVar[str] = "listops"
    settings: ClassVar[type[Settings]] = ListOpsSettings
    presets: ClassVar[Mapping[str, Settings]] = {"paper": PAPER, "best": BEST}

    def data(self, settings: Settings, data_dir: Path | None = None) -> Data:
        return _generated(_DATA_SEED)

    def model(self, settings: Settings) -> nn.Module:
        s = cast(ListOpsSettings, settings)
        if s.model == "lstm":
            return Sequence(s.dim)
        edges = Edges(
            _encoder(s) if s.edges == "learned" else None,
            parents=s.parents,
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
            for name in ("test", *DEEPER, *(s for s in data.splits if s.startswith("critical"))):
                measured = measure(model, data, name, rounds_for(name))
                numbers |= {f"{name} {what}/{decode}": value for what, value in measured.items()}
        set_decode(model, "argmax")
        return numbers

    def exhibits(self, model: nn.Module, settings: Settings, data: Data) -> tuple[Exhibit, ...]:
        from . import exhibits

        return exhibits.of_model(model, data)

    def commands(self) -> Mapping[str, Callable[..., str | Iterator[str]]]:
        from . import commands

        return {
            "evaluate": commands.evaluate,
            "predict": commands.predict,
            "data": commands.data,
        }


def _encoder(settings: ListOpsSettings) -> nn.Module:
    if settings.encoder == "lstm":
        return TwoLSTMs(settings.dim)
    return Counters(settings.counters)


def measure(model: nn.Module, data: Data, split: str, rounds: int) -> dict[str, float]:
    """Accuracy of answers, precision of edges, accuracy of intermediate values, in [0, 1]."""
    counted = count(model, data.tables(split), rounds)
    return {name: right / number for name, (right, number) in counted.items() if number}


@torch.no_grad()
def count(model: nn.Module, tables: Iterable[Batch], rounds: int) -> dict[str, tuple[int, int]]:
    """How many are right, and of how many: "task" answers, "edge"s and "inter"mediate values.

    Edges count for all tokens but the root and closing brackets; intermediate values for all
    operators but the root. A model whose states are no digits has no intermediate values, one
    without a tree has answers alone.
    """
    decoder = Decoder(model) if isinstance(model, LatentTree) else None
    right: dict[str, list[Tensor]] = {}
    for table in tables:
        # A GPU takes a table at once, and is asked for no number on the way.
        size, on_cpu = len(table["label"]), table["label"].is_cpu
        step = at_once(table["tokens"].shape[1]) if on_cpu else size
        for first in range(0, size, step):
            rows = {name: tensor[first : first + step] for name, tensor in table.items()}
            for name, verdicts in _verdicts(decoder or model, rows, rounds).items():
                right.setdefault(name, []).append(verdicts)
    together = {name: torch.cat(verdicts) for name, verdicts in right.items()}
    return {name: (int(each.sum()), len(each)) for name, each in together.items()}


def _verdicts(
    model: Decoder | nn.Module, rows: Batch, rounds: int
) -> dict[str, Bool[Tensor, " _"]]:
    """Whether each answer, edge and intermediate value is right."""
    tokens, parents = rows["tokens"].long(), rows["parents"].long()
    counted = (parents >= 0) & (tokens != CLOSE)
    if isinstance(model, StateTree):
        edges, answers = model.run(tokens, rows["length"], parents, rounds)
        found = edges.gather(-1, parents.clamp(min=0).unsqueeze(-1)).squeeze(-1) > 0
        return {"task": answers.argmax(-1) == rows["label"], "edge": found[counted]}
    if not isinstance(model, Decoder):
        return {"task": model(tokens, rows["length"], parents).argmax(-1) == rows["label"]}
    decoded = model(tokens, rows["length"], parents, rounds)
    return {
        "task": decoded.answers == rows["label"],
        "edge": (decoded.parents == parents)[counted],
        "inter": (decoded.values[-1] == rows["values"])[counted & (tokens < ZERO)],
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
