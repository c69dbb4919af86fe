"""What a task is: five verbs that the loop knows, and optional objects for whoever needs more."""

from __future__ import annotations

import ctypes
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn

from ...nodes import Decode
from .metrics import Metrics
from .panels import Panel, Remark
from .settings import Settings

S = TypeVar("S", bound=Settings)

Precision = Literal["highest", "high"]
"""As torch.set_float32_matmul_precision has it: "high" is TF32."""

Batch = dict[str, Tensor]
"""Tensors whose first dimension counts examples."""


@dataclass(frozen=True)
class Data:
    """The examples of a task; all of it is moved to the device before training.

    ``splits`` holds "train", "test" and, unless weights are selected on the test set, "validation".
    Each is a table: tensors whose first dimension counts the examples. Examples of different
    shapes, such as sequences of different lengths, are in several tables of a split; a batch comes
    from one of them. What examples point to, such as images, is in ``constants``.

    ``to_batch(constants, rows, training)`` makes of some rows what loss and metrics see, on the
    device; also augmentation. Without it they see the rows.
    """

    splits: Mapping[str, Batch | Sequence[Batch]]
    fingerprint: str
    constants: Batch = field(default_factory=dict)
    to_batch: Callable[[Batch, Batch, bool], Batch] | None = None

    def __post_init__(self) -> None:
        for split in self.splits:
            for table in self.tables(split):
                sizes = {name: tensor.shape[0] for name, tensor in table.items()}
                if len(set(sizes.values())) != 1 or 0 in sizes.values():
                    raise ValueError(f"split {split!r} needs as many rows in each tensor: {sizes}.")

    def batch(self, rows: Batch, *, training: bool) -> Batch:
        """What loss and metrics see of some rows of a split."""
        return rows if self.to_batch is None else self.to_batch(self.constants, rows, training)

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

    def only(self, *splits: str) -> Data:
        """The same without the other splits: what must not be seen is not there."""
        return replace(self, splits={split: self.splits[split] for split in splits})

    def to(self, device: Any) -> Data:
        splits = {
            split: [
                {key: tensor.to(device) for key, tensor in table.items()}
                for table in self.tables(split)
            ]
            for split in self.splits
        }
        constants = {key: tensor.to(device) for key, tensor in self.constants.items()}
        return replace(self, splits=splits, constants=constants)


@dataclass(frozen=True)
class Execution:
    """How the engine trains and evaluates a task."""

    monitor: str = "accuracy"  # the metric by which the best weights are selected
    monitor_decoder: Decode = "argmax"  # how the nodes choose when that is measured
    decoders: tuple[Decode, ...] = ("argmax", "sample")  # how they choose in all evaluations
    precision: Precision = "highest"  # of matrix products in training, on CUDA
    compiles: bool = True  # whether torch.compile makes a step faster: hardly one of kernels
    captures_evaluation: bool = True  # not if an evaluation asks for sizes on the way
    evaluated_at_once: int | None = None  # examples times replicas, if the engine's guess is wrong


class Task(ABC, Generic[S]):
    """A task for the training loop. It is written for one model; populations map over it."""

    name: ClassVar[str]
    settings: ClassVar[type[Settings]] = Settings
    presets: ClassVar[Mapping[str, Settings]]
    open_settings: ClassVar[Mapping[str, Collection[str]]] = {}
    """Settings that a preset leaves open, by its name; :meth:`fitted` chooses them."""

    @abstractmethod
    def data(self, settings: S, data_dir: Path | None = None) -> Data:
        """The examples."""

    @abstractmethod
    def model(self, settings: S) -> nn.Module:
        """A fresh model, with initial weights from torch's global generator."""

    def divided_model(self, settings: S, group: dist.ProcessGroup) -> nn.Module:
        """What :meth:`model` makes, but of some parameters only those rows that this rank has.

        Only its loss in training is asked for. All ranks of the group make the same draws and find
        the same loss; the gradient of own rows is complete, and that of whole parameters is the
        same everywhere. The rows of the ranks follow each other, and there are those that
        :meth:`model` draws, whatever the number of ranks.
        """
        raise ValueError(
            f"the models of {self.name} have no codebook that ranks could divide; leave out "
            "--divide codebook."
        )

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, " examples"]:
        """The loss of each example; training minimises the sum over a batch.

        The probe computes it on evaluation batches too, in training mode and in eval mode.
        """

    @abstractmethod
    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Float[Tensor, " examples"]]:
        """What is measured on each example, with the model in eval mode; averages are reported."""

    def final_metrics(
        self, model: nn.Module, settings: S, data: Data, calibration: Mapping[str, float]
    ) -> Metrics:
        """What else is measured of a trained model, after the test of its :meth:`metrics`.

        The model is in eval mode; it and the data are where it was trained.
        """
        return {}

    def calibrate(self, model: nn.Module, settings: S, data: Data) -> dict[str, float]:
        """What is tuned on the validation split, before the test split is opened.

        ``data`` has no other split. Without a validation split nothing is calibrated.
        """
        return {}

    def preset_for(self, given: Mapping[str, str]) -> str:
        """The preset where none is named; ``given`` are the settings of a command line, as text."""
        return next(iter(self.presets))

    def run_name(self, preset: str, given: Mapping[str, str]) -> str:
        """What the folder of a run is called, unless it is named."""
        return f"{self.name}-{preset}"

    def fitted(self, settings: S, chosen: Collection[str], data_dir: Path | None = None) -> S:
        """The settings for their data, where a preset leaves some open.

        Open settings that ``chosen`` names stay, and the others fit to them. What comes out is
        complete: it is what a run keeps, so that it does not depend on how it was found.
        """
        return settings

    def remarks(
        self, model: nn.Module, settings: S, data_dir: Path | None = None
    ) -> Sequence[Remark]:
        """What to say of the best model at the end of a run, such as that it has learned little."""
        return ()

    def execution(self, settings: S) -> Execution:
        """How the engine trains and evaluates this task."""
        return Execution()

    def vocabulary(self, settings: S) -> str:
        """A fingerprint of what the rows of a model stand for, where that is in files.

        It is saved with a model, which is not loaded when they stand for something else.
        """
        return ""

    def carried(self, settings: S) -> bytes:
        """What the file of a model carries besides, so that it can be used where the data are not.

        :func:`~dcgraph.experiments.engine.models.carried_by` reads it; equal data are equal bytes.
        """
        return b""

    def categories(self, settings: S) -> Sequence[str]:
        """The names of the categories of all nodes, for pictures; none if they are only numbers."""
        return ()

    def panels(self, model: nn.Module, settings: S, data: Data) -> Sequence[Panel]:
        """What to show of a trained model on the page of a run: examples, tables it learned."""
        return ()

    def commands(self) -> Mapping[str, Callable[..., str | Iterator[str]]]:
        """What ``dcgraph evaluate``, ``predict`` and ``data`` do for this task.

        Functions by the name of the command; their arguments are its options, and the text they
        return is printed, or each text of an iterator as it comes.
        """
        return {}


AnyTask = Task[Any]
"""A task of any settings, as the engine sees it."""


def fingerprint_of(*parts: str | Tensor) -> str:
    """Sixteen hexadecimal digits that change with the data."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else _raw(part))
    return digest.hexdigest()[:16]


def _raw(tensor: Tensor) -> bytes:
    held = tensor.detach().cpu().contiguous()  # torch itself has no way to bytes without numpy
    return ctypes.string_at(held.data_ptr(), held.numel() * held.element_size())
