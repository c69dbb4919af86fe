"""The tasks of the paper, and how to find one by name."""

from __future__ import annotations

import importlib

from ..._arguments import closest
from ..engine.tables import Table
from ..engine.task import Task

TASKS = {
    "addition": "dcgraph.experiments.tasks.addition.task:Addition",
    "listops": "dcgraph.experiments.tasks.listops.task:ListOps",
    "paths": "dcgraph.experiments.tasks.paths.task:Paths",
}
"""Where each task is; a user's own is named the same way, ``module:Class``."""


TABLES = {
    "addition": "dcgraph.experiments.tasks.addition.tables:ADDITION",
    "addition-lr": "dcgraph.experiments.tasks.addition.tables:LEARNING_RATES",
    "addition-ablation": "dcgraph.experiments.tasks.addition.tables:ABLATION",
    "addition-chain": "dcgraph.experiments.tasks.addition.tables:CHAIN_ABLATION",
    "annealing": "dcgraph.experiments.tasks.addition.tables:ANNEALING",
    "listops": "dcgraph.experiments.tasks.listops.tables:LISTOPS",
    "listops-ablation": "dcgraph.experiments.tasks.listops.tables:ABLATION",
    "listops-masks": "dcgraph.experiments.tasks.listops.tables:MASKS",
    "paths": "dcgraph.experiments.tasks.paths.tables:PATHS",
    "paths-extrapolation": "dcgraph.experiments.tasks.paths.tables:EXTRAPOLATION",
    "paths-small": "dcgraph.experiments.tasks.paths.tables:SMALL",
    "paths-small-beam": "dcgraph.experiments.tasks.paths.tables:SMALL_BEAM",
    "paths-small-bidirectional": "dcgraph.experiments.tasks.paths.tables:SMALL_BIDIRECTIONAL",
    "paths-noise": "dcgraph.experiments.tasks.paths.search:NOISE",
    "paths-short": "dcgraph.experiments.tasks.paths.search:SHORT",
    "paths-search": "dcgraph.experiments.tasks.paths.search:SEARCH",
    "fb15k-237": "dcgraph.experiments.tasks.paths.tables:FB15K_237",
    "fb15k-237-beam": "dcgraph.experiments.tasks.paths.tables:FB15K_237_BEAM",
}
"""Where each table is."""


def get_table(name: str) -> Table:
    """A table by its name."""
    if name not in TABLES:
        raise ValueError(f"unknown table {name!r}; {closest(name, TABLES)}")
    module, _, attribute = TABLES[name].partition(":")
    table = getattr(importlib.import_module(module), attribute)
    assert isinstance(table, Table)
    return table


def get_task(name: str) -> Task:
    """A task of ours by its name, anyone's by ``module:Class``.

    >>> get_task("addition").name
    'addition'
    """
    module, colon, kind = TASKS.get(name, name).partition(":")
    if not colon:
        raise ValueError(
            f"unknown task {name!r}; {closest(name, TASKS)} Your own is named module:Class."
        )
    try:
        task = getattr(importlib.import_module(module), kind)()
    except Exception as error:  # whatever is wrong in somebody's module
        kind_of_error = type(error).__name__
        raise ValueError(f"cannot load task {name!r}: {kind_of_error}: {error}.") from error
    if not isinstance(task, Task):
        raise ValueError(f"{name!r} is not a dcgraph.experiments.engine.Task.")
    if not task.presets:
        raise ValueError(f"task {name!r} has no presets; one is needed, for the defaults.")
    return task
