"""The replicas of a run, in groups that differ only in the seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..engine.metrics import Metric
from ..engine.records import Probes, Record
from ..engine.settings import Settings, from_dict
from ..engine.task import AnyTask
from .charts import COLOURS

_PER_CHART = 4  # groups in one chart, where there are too many for one


@dataclass(frozen=True)
class Replica:
    """One replica: the group it belongs to, what came of it, and its model if that was kept."""

    group: str  # the settings it stands for in words
    record: Record
    probes: Probes = field(default_factory=dict)
    model: Path | None = None


@dataclass(frozen=True)
class Group:
    """Replicas that differ only in the seed."""

    name: str
    number: int
    replicas: list[Replica]
    settings: Settings

    def best(self) -> Replica:
        """By what the weights were selected by."""
        return max(self.replicas, key=lambda replica: replica.record.score())

    def has_nodes(self) -> bool:
        """Only nodes can be probed, and only models with nodes are measured by sampling."""
        return any(
            replica.probes or any(m.decoder == "sample" for m in replica.record.curve.metrics)
            for replica in self.replicas
        )


def grouped(task: AnyTask, replicas: Sequence[Replica]) -> list[Group]:
    by_name: dict[str, list[Replica]] = {}
    for replica in replicas:
        by_name.setdefault(replica.group, []).append(replica)
    return [
        Group(name, number, some, from_dict(task.settings, some[0].record.settings))
        for number, (name, some) in enumerate(by_name.items())
    ]


def monitored(groups: Sequence[Group], set: str = "test") -> Metric:
    """The metric to look at: the one by which the weights were selected, in the first group."""
    return Metric(groups[0].replicas[0].record.selection.metric.name, set)


def selected_on(groups: Sequence[Group]) -> str:
    """The split on which the weights were selected."""
    return " or ".join(
        sorted({r.record.selection.metric.set for group in groups for r in group.replicas})
    )


def leading(groups: Sequence[Group], count: int) -> list[Group]:
    """The groups with the best replicas, in their old order."""
    ranked = sorted(groups, key=lambda group: -group.best().record.score())
    return sorted(ranked[:count], key=lambda group: group.number)


def readable(groups: Sequence[Group]) -> list[Sequence[Group]]:
    """Groups that share a chart: all, unless there are more than colours to tell them apart."""
    at_once = COLOURS if len(groups) <= COLOURS else _PER_CHART
    return [groups[k : k + at_once] for k in range(0, len(groups), at_once)]


def keys(groups: Sequence[Group]) -> list[dict[str, Any]]:
    return [{"name": group.name, "number": group.number} for group in groups]
