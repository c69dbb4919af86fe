"""The engine: one loop for every task, for one model and for a population of them.

The names here are loaded when they are first used: tables are shown without torch.
"""

from typing import TYPE_CHECKING

from ..._lazy import lazy

if TYPE_CHECKING:
    from .errors import Interrupted
    from .loop import Callbacks, train
    from .metrics import Metric, Metrics
    from .outcome import Evaluation, Outcome
    from .settings import Settings, setting
    from .task import Batch, Data, Execution, Task

__all__ = [
    "Batch",
    "Callbacks",
    "Data",
    "Evaluation",
    "Execution",
    "Interrupted",
    "Metric",
    "Metrics",
    "Outcome",
    "Settings",
    "Task",
    "setting",
    "train",
]

if not TYPE_CHECKING:  # or a type checker would take any name for one of ours
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "errors": ["Interrupted"],
            "loop": ["Callbacks", "train"],
            "metrics": ["Metric", "Metrics"],
            "outcome": ["Evaluation", "Outcome"],
            "settings": ["Settings", "setting"],
            "task": ["Batch", "Data", "Execution", "Task"],
        },
    )
