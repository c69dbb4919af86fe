"""The replicas of a run, in groups that differ in the seed alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..engine.records import Record
from ..engine.settings import Settings, from_dict
from ..engine.task import Task
from .charts import COLOURS

_PER_CHART = 4  # groups in one chart, where there are too many for one


@dataclass(frozen=True)
class Replica:
    """One replica: the settings it stands for in words, its record, its model if it was kept."""

    group: str
    record: Record
    model: Path | None = None


@dataclass(frozen=True)
class Group:
    """Replicas that differ in the seed alone."""

    name: str
    number: int
    replicas: list[Replica]
    settings: Settings


def grouped(task: Task, replicas: Sequence[Replica]) -> list[Group]:
    by_name: dict[str, list[Replica]] = {}
    for replica in replicas:
        by_name.setdefault(replica.group, []).append(replica)
    return [
        Group(name, number, some, from_dict(task.settings, some[0].record["settings"]))
        for number, (name, some) in enumerate(by_name.items())
    ]


def metric_of(groups: Sequence[Group], task: Task) -> str:
    """The metric to look at: by which the weights were chosen, in the first group."""
    return task.monitored(groups[0].settings)


def _score(replica: Replica, task: Task) -> float:
    """What the weights of a replica were chosen by."""
    name = replica.record.get("chosen_by", f"{task.monitor}/argmax")  # older records lack it
    looks = (look[name] for look in replica.record["curve"])
    return max((value for value in looks if value is not None), default=-math.inf)


def best_of(group: Group, task: Task) -> Replica:
    return max(group.replicas, key=lambda replica: _score(replica, task))


def leading(groups: Sequence[Group], count: int, task: Task) -> list[Group]:
    """The groups with the best replicas, in their old order."""
    ranked = sorted(groups, key=lambda group: -_score(best_of(group, task), task))
    return sorted(ranked[:count], key=lambda group: group.number)


def readable(groups: Sequence[Group]) -> list[Sequence[Group]]:
    """Groups that share a chart: all, unless there are more than colours to tell them apart."""
    at_once = COLOURS if len(groups) <= COLOURS else _PER_CHART
    return [groups[k : k + at_once] for k in range(0, len(groups), at_once)]


def keys(groups: Sequence[Group]) -> list[dict[str, Any]]:
    return [{"name": group.name, "number": group.number} for group in groups]


def epoch_of(record: Record, step: int) -> float:
    return float(step * record["settings"]["epochs"] / record["steps"])
