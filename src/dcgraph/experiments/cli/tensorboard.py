"""Learning curves for TensorBoard, an option of ``dcgraph train``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..engine import Evaluation, Watch


def write_curves(folder: Path, names: Sequence[str]) -> Watch:
    """One TensorBoard run per replica in ``folder``."""
    import tensorboard  # noqa: F401  (torch's own complaint does not name the package)
    from torch.utils.tensorboard import SummaryWriter

    writers = [SummaryWriter(str(folder / name)) for name in names]

    def evaluation(look: Evaluation) -> None:
        for index, writer in enumerate(writers):
            for name, values in {"loss": look.loss, **look.metrics}.items():
                if values[index] is not None:
                    writer.add_scalar(name, values[index], look.step)
            writer.flush()

    return Watch(evaluation=evaluation)
