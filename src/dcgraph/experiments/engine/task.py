"""What a task is: data, model, loss, metrics and read-out, the five verbs that the loop knows."""

from __future__ import annotations

import ctypes
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from jaxtyping import Float
from torch import Tensor, nn

from ...nodes import Decode
from .panels import Exhibit
from .readouts import Layout, by_set
from .settings import Settings

Precision = Literal["highest", "high"]
"""As torch.set_float32_matmul_precision has it: "high" is TF32."""

Batch = dict[str, Tensor]
"""Tensors whose first dimension counts examples."""


@dataclass(frozen=True)
class Data:
    """The examples of a task; all of it is moved to the device before training.

    ``splits`` holds "train", "test" and, unless models are chosen on the test set, "validation".
    Each is a table: tensors whose first dimension counts the examples. Examples of different
    shapes, such as sequences of different lengths, are in several tables of a split; a batch comes
    from one of them. What examples share, such as images they point to, is in ``shared``.
    """

    splits: Mapping[str, Batch | Sequence[Batch]]
    fingerprint: str
    shared: Batch = field(default_factory=dict)

    def __post_init__(self) -> None:
        for split in ("train", "test"):
            if split not in self.splits:
                raise ValueError(f"there is no split {split!r}; a task needs it.")
        for split in self.splits:
            for table in self.tables(split):
                sizes = {name: tensor.shape[0] for name, tensor in table.items()}
                if len(set(sizes.values())) != 1 or 0 in sizes.values():
                    raise ValueError(f"split {split!r} needs as many rows in each tensor: {sizes}.")

    def tables(self, split: str) -> Sequence[Batch]:
        """The tables of a split, one for each shape."""
        tables = self.splits[split]
        return [tables] if isinstance(tables, dict) else tables

    def table(self, split: str) -> Batch:
        """The table of a split that has only one."""
        (table,) = self.tables(split)
        return table

    def sizes(self, split: str) -> list[int]:
        """How many examples each table of a split has."""
        return [next(iter(table.values())).shape[0] for table in self.tables(split)]

    def size(self, split: str) -> int:
        return sum(self.sizes(split))

    def to(self, device: Any) -> Data:
        splits = {
            split: [
                {key: tensor.to(device) for key, tensor in table.items()}
                for table in self.tables(split)
            ]
            for split in self.splits
        }
        shared = {key: tensor.to(device) for key, tensor in self.shared.items()}
        return Data(splits, self.fingerprint, shared)


class Task(ABC):
    """A task for the training loop. It is written for one model; populations map over it."""

    name: ClassVar[str]
    settings: ClassVar[type[Settings]] = Settings
    presets: ClassVar[Mapping[str, Settings]]
    monitor: ClassVar[str] = "accuracy"  # the metric by which the best weights are chosen
    replays_evaluation: ClassVar[bool] = True
    """Whether CUDA graphs can hold an evaluation: not if it asks for sizes on the way."""
    compiles: ClassVar[bool] = True
    """Whether torch.compile makes a step faster: hardly one that is made of kernels of ours."""
    decodes: ClassVar[tuple[Decode, ...]] = ("argmax", "sample")
    """How the nodes choose when a model is measured."""

    @abstractmethod
    def data(self, settings: Settings, data_dir: Path | None = None) -> Data:
        """The examples."""

    @abstractmethod
    def model(self, settings: Settings) -> nn.Module:
        """A fresh model, with initial weights from torch's global generator."""

    def inputs(self, settings: Settings, shared: Batch, rows: Batch, training: bool) -> Batch:
        """What loss and metrics see of some rows of a split, on the device; also augmentation."""
        return rows

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, " examples"]:
        """The loss of each example; training minimises the sum over a batch.

        The probe computes it on evaluation batches too, in training mode and in eval mode.
        """

    @abstractmethod
    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Float[Tensor, " examples"]]:
        """What is measured on each example, with the model in eval mode; averages are reported."""

    def readout(self, model: nn.Module, settings: Settings, data: Data) -> dict[str, float]:
        """What a trained model has learned, in numbers.

        The model is in eval mode; it and the data are where it was trained.
        """
        return {}

    def monitored(self, settings: Settings) -> str:
        """The metric by which the best weights are chosen, where it depends on the settings."""
        return self.monitor

    def precision(self, settings: Settings) -> Precision:
        """Of matrix products of float32 in training, on CUDA; evaluation has the highest."""
        return "highest"

    def evaluated_at_once(self, settings: Settings) -> int | None:
        """How many examples times replicas at most, where the engine's guess may be too many."""
        return None

    def chosen_by(self, settings: Settings) -> Decode:
        """How the nodes decode when the best weights are chosen: one of ``decodes``."""
        return "argmax"

    def names_fingerprint(self, settings: Settings) -> str:
        """A fingerprint of what the rows of a model stand for, where that is in files.

        It is saved with a model, which is not loaded when they stand for something else.
        """
        return ""

    def arranged(self, names: Iterable[str]) -> tuple[list[str], Layout]:
        """How screens show the numbers of a record: those that stand alone, and a grid."""
        return by_set(names)

    def exhibits(self, model: nn.Module, settings: Settings, data: Data) -> Sequence[Exhibit]:
        """What to show of a trained model on the page of a run: examples, tables it learned."""
        return ()

    def commands(self) -> Mapping[str, Callable[..., str | Iterator[str]]]:
        """What ``dcgraph evaluate``, ``predict`` and ``data`` do for this task.

        Functions by the name of the command; their arguments are its options, and the text they
        return is printed, or each text of an iterator as it comes.
        """
        return {}


def fingerprint_of(*parts: str | Tensor) -> str:
    """Sixteen hexadecimal digits that change with the data."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else _raw(part))
    return digest.hexdigest()[:16]


def _raw(tensor: Tensor) -> bytes:
    held = tensor.detach().cpu().contiguous()  # torch itself has no way to bytes without numpy
    return ctypes.string_at(held.data_ptr(), held.numel() * held.element_size())
