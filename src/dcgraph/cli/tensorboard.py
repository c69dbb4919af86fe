"""Learning curves for TensorBoard, an option of ``dcgraph train``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..training import Evaluation, Settings, Watch


def write_curves(folder: Path, replicas: Sequence[Settings], names: Sequence[str]) -> Watch:
    """One TensorBoard run per replica in ``folder``."""
    import tensorboard  # noqa: F401  (torch's own complaint does not name the package)
    from torch.utils.tensorboard import SummaryWriter

    labels = [f"{name}_seed-{s.seed}" for name, s in zip(names, replicas, strict=True)]
    writers = [SummaryWriter(str(folder / label)) for label in labels]

    def evaluation(look: Evaluation) -> None:
        for index, writer in enumerate(writers):
            for name, values in {"loss": look.loss, **look.metrics}.items():
                if values[index] is not None:
                    writer.add_scalar(name, values[index], look.step)
            writer.flush()

    return Watch(evaluation=evaluation)
