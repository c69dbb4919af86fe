"""Which paths are trained on, and by which ones weights are chosen."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import torch

from ...engine.datasets import DataError
from ...engine.task import Batch
from .data import PathData
from .queries import Queries, joined, turned
from .sampling import marks
from .settings import PathSettings

_log = logging.getLogger(__name__)


def trained_on(source: PathData, settings: PathSettings) -> list[Queries]:
    """The training paths that are not too long and no queries of other splits.

    Single triples are among them as often as the settings say.
    """
    groups = source.splits["train"]
    lengths = [group.hops for group in groups]
    if settings.length > max(lengths):
        _log.info("%s has training paths of up to %d relations.", settings.graph, max(lengths))
    short = [group for group in groups if group.hops <= settings.length]
    kept = [group for group in _without_queries(short, source, settings) if len(group)]
    if not kept:
        raise DataError(
            f"{settings.graph} has no training paths of up to {settings.length} relations that are "
            f"not asked from their end; it has paths of {min(lengths)} to {max(lengths)} relations."
        )
    if dropped := sum(map(len, short)) - sum(map(len, kept)):
        _log.info("%d training paths whose reverse is a query are left out.", dropped)
    return _with_triples(kept, settings)


def _with_triples(groups: Sequence[Queries], settings: PathSettings) -> list[Queries]:
    if settings.triples > 1 and all(group.hops > 1 for group in groups):
        raise DataError(
            f"triples={settings.triples}, but no training path of {settings.graph} has one "
            "relation alone; use --triples 1."
        )
    return [joined([group] * settings.triples) if group.hops == 1 else group for group in groups]


def is_turned(hops: int, settings: PathSettings) -> bool:
    """Whether paths of a length are trained from their end to their start, too."""
    return settings.backwards == "paths" or (settings.backwards == "triples" and hops == 1)


def _without_queries(
    groups: Sequence[Queries], source: PathData, settings: PathSettings
) -> list[Queries]:
    """Without those whose reverse is a query of validation or test.

    It matters where they are trained backwards, or queries are asked backwards. Sampled paths never
    are such, those of files may be. What files have in two splits as it is stays in both.
    """
    relations, kept = len(source.graph.relations), []
    for group in groups:
        if settings.protocol == "all" or is_turned(group.hops, settings):
            there, back = marks(group), marks(turned(group, relations))
            seen = torch.zeros(len(group), dtype=torch.bool)
            for split in source.splits.keys() - {"train"}:
                for asked in source.splits[split]:
                    if asked.hops == group.hops:
                        known = marks(asked)
                        seen |= torch.isin(back, known) & ~torch.isin(there, known)
            group = group[~seen]
        kept.append(group)
    return kept


def chosen_on(tables: Sequence[Batch], settings: PathSettings) -> list[Batch]:
    """The validation tables by which weights are chosen."""
    trained = settings.length
    shortest = trained + 1 if settings.choose_on == "next" else 1
    longest = {"trained": trained, "next": trained + 1}.get(settings.choose_on, math.inf)
    chosen = [table for table in tables if shortest <= table["path"].shape[1] <= longest]
    if not chosen:
        raise DataError(
            f"{settings.graph} has no validation paths for choose_on={settings.choose_on!r} and "
            f"length={settings.length}; use --choose-on all."
        )
    return chosen
