"""Training: one loop for every task, for one model and for a population of them."""

from ...population import Population
from .loop import Interrupted, Watch, train
from .outcome import Evaluation, Outcome
from .settings import Settings, shared
from .task import Batch, Data, Task

__all__ = [
    "Batch",
    "Data",
    "Evaluation",
    "Interrupted",
    "Outcome",
    "Population",
    "Settings",
    "Task",
    "Watch",
    "shared",
    "train",
]
