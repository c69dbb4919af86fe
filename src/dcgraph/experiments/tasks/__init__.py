"""The tasks of the paper and the tables of their runs, by name. Nothing here imports torch."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..._arguments import closest, shown
from ..engine.tables import Table

if TYPE_CHECKING:
    from ..engine.task import Task


@dataclass(frozen=True)
class Entry:
    """Where a task or a table is, and what it is in a few words."""

    where: str  # module:name
    summary: str

    def load(self) -> Any:
        module, _, name = self.where.partition(":")
        return getattr(importlib.import_module(module), name)


def _here(where: str, summary: str) -> Entry:
    return Entry(f"{__name__}.{where}", summary)


TASKS = {
    "addition": _here(
        "addition.task:Addition", "read digits and add them, one by one or column by column"
    ),
    "listops": _here(
        "listops.task:ListOps", "learn to parse nested expressions and to compute their values"
    ),
    "paths": _here(
        "paths.task:Paths", "follow relations through a knowledge graph, entity by entity"
    ),
}


TABLES = {
    "addition": _here("addition.tables:ADDITION", "MNIST addition, the paper's table"),
    "addition-lr": _here(
        "addition.tables:LEARNING_RATES", "the paper's method at the learning rates it tried"
    ),
    "addition-ablation": _here("addition.tables:ABLATION", "the paper's method without parts"),
    "addition-chain": _here(
        "addition.tables:CHAIN_ABLATION", "the same for three summands, a chain"
    ),
    "addition-carry": _here(
        "addition.chain_tables:CARRIES", "numbers of several digits, with a learned carry"
    ),
    "addition-sums": _here(
        "addition.chain_tables:LONG_SUMS", "sums of three, five and eight digits"
    ),
    "addition-sums-ablation": _here(
        "addition.chain_tables:SUMS_ABLATION", "what each part brings to sums of five digits"
    ),
    "annealing": _here(
        "addition.tables:ANNEALING", "three ways to set tau and beta, behind three figures"
    ),
    "listops": _here("listops.tables:LISTOPS", "ListOps, the paper's table"),
    "listops-ablation": _here("listops.tables:ABLATION", "ListOps without parts of the method"),
    "listops-masks": _here(
        "listops.tables:MASKS", "ListOps with dropout masks per pair, and shared"
    ),
    "listops-ladder": _here(
        "listops.tables:LADDER", "what models are given, and what that is worth"
    ),
    "paths": _here("paths.tables:PATHS", "path queries, the paper's table"),
    "paths-extrapolation": _here(
        "paths.tables:EXTRAPOLATION", "the same, trained on shorter paths"
    ),
    "paths-small": _here("paths.tables:SMALL", "trained on short paths of a small graph, on a CPU"),
    "paths-small-beam": _here("paths.tables:SMALL_BEAM", "the same runs, by beam search"),
    "paths-small-bidirectional": _here(
        "paths.tables:SMALL_BIDIRECTIONAL", "the same runs, with bidirectional scoring"
    ),
    "paths-noise": _here("paths.search:NOISE", "distribution and scale of the noise of the hops"),
    "paths-short": _here("paths.search:SHORT", "dropout, and how often triples are trained on"),
    "paths-search": _here("paths.search:SEARCH", "the paper's search for dropout and L2"),
    "fb15k-237": _here("paths.tables:FB15K_237", "path queries on FB15k-237, by length"),
    "fb15k-237-beam": _here("paths.tables:FB15K_237_BEAM", "the same runs, by beam search"),
    "estimators-addition": _here(
        "addition.tables:ESTIMATORS", "all gradient estimators, on sums of three digits"
    ),
    "estimators-listops": _here(
        "listops.tables:ESTIMATORS", "all gradient estimators, on short ListOps"
    ),
    "estimators-paths": _here(
        "paths.tables:ESTIMATORS", "all gradient estimators, on paths of a small graph"
    ),
    "plane-addition": _here(
        "addition.tables:PLANE", "tau and beta constant, on sums of three digits"
    ),
    "plane-listops": _here("listops.tables:PLANE", "tau and beta constant, on short ListOps"),
    "plane-paths": _here("paths.tables:PLANE", "tau and beta constant, on paths of a small graph"),
}


def get_table(name: str) -> Table:
    """A table by its name."""
    if name not in TABLES:
        raise ValueError(f"unknown table {shown(name)}; {closest(name, TABLES)}")
    table = TABLES[name].load()
    assert isinstance(table, Table)
    return table


def get_task(name: str) -> Task[Any]:
    """A task of the package by its name, any other by ``module:Class``.

    >>> get_task("addition").name
    'addition'
    """
    if name not in TASKS and ":" not in name:
        raise ValueError(
            f"unknown task {shown(name)}; {closest(name, TASKS)} Your own is named module:Class."
        )
    from ..engine.task import Task  # start-up time: torch, which tables do without

    entry = TASKS.get(name) or Entry(name, "")
    try:
        task = entry.load()()
    except Exception as error:  # whatever is wrong in somebody's module
        kind_of_error = type(error).__name__
        raise ValueError(f"cannot load task {name!r}: {kind_of_error}: {error}.") from error
    if not isinstance(task, Task):
        raise ValueError(f"{name!r} is not a dcgraph.experiments.engine.Task.")
    if not task.presets:
        raise ValueError(f"task {name!r} has no presets; one is needed, for the defaults.")
    return task
