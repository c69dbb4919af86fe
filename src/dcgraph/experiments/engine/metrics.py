"""Metrics are data: a number has a name, an evaluation set, a decoder and so on, as fields."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

Decoder = Literal["argmax", "sample", "beam"]
"""How the choices of a model become an answer."""

Ties = Literal["realistic", "optimistic", "pessimistic"]
"""The rank of an answer among equal scores: the mean of those possible, the best, or the worst."""


@dataclass(frozen=True)
class Metric:
    """What was measured, and how.

    >>> Metric("H@10", decoder="beam", length=3)
    Metric(name='H@10', set='test', decoder='beam', bidirectional=False, length=3, ties='realistic')
    """

    name: str
    set: str = "test"  # a split, or another evaluation set of the task
    decoder: Decoder | None = "argmax"  # None where nothing is decoded
    bidirectional: bool = False  # whether triples were scored in both directions
    length: int | None = None  # of the paths; None for all of them together
    ties: Ties = "realistic"


Metrics = dict[Metric, float | None]
"""None where a number could not be measured."""

_OMITTED: Mapping[str, Any] = {
    "set": "test",
    "decoder": "argmax",
    "bidirectional": False,
    "length": None,
    "ties": "realistic",
}
"""What a field is worth that a stored metric leaves out: a part of schema 1 of records.

Not the defaults of :class:`Metric`, which may change: no record shall mean something else then.
"""


def to_fields(metric: Metric) -> dict[str, Any]:
    """A metric for JSON: the name, and the fields that are not what an omitted one stands for."""
    said = {
        name: value
        for name, omitted in _OMITTED.items()
        if (value := getattr(metric, name)) != omitted
    }
    return {"name": metric.name, **said}


def from_fields(stored: Mapping[str, Any]) -> Metric:
    """A metric as :func:`to_fields` wrote it."""
    if "name" not in stored or not stored.keys() <= {"name", *_OMITTED}:
        raise ValueError(f"{dict(stored)!s:.80} is not a metric.")
    metric = Metric(**{**_OMITTED, **stored})
    texts, length = (metric.name, metric.set), metric.length
    known = metric.decoder in (None, *get_args(Decoder)) and metric.ties in get_args(Ties)
    if (
        not known
        or any(type(text) is not str for text in texts)
        or type(metric.bidirectional) is not bool
        or (length is not None and type(length) is not int)
    ):
        raise ValueError(f"{dict(stored)!s:.80} is not a metric.")
    return metric


def measured_as(metric: Metric) -> str:
    """The decoder in words, with what changes it: the column of a metric on a screen.

    >>> measured_as(Metric("MQ", decoder="beam", bidirectional=True))
    'beam search, bidirectional'
    >>> measured_as(Metric("MQ", ties="pessimistic"))
    'argmax, pessimistic ties'
    """
    decoder = {"beam": "beam search", None: ""}.get(metric.decoder, metric.decoder or "")
    parts = (
        decoder,
        "bidirectional" if metric.bidirectional else "",
        "" if metric.ties == "realistic" else f"{metric.ties} ties",
    )
    return ", ".join(part for part in parts if part)


def measured_on(metric: Metric) -> str:
    """The name with set and length: the row of a metric on a screen.

    The test set goes without saying.

    >>> measured_on(Metric("MQ", length=2)), measured_on(Metric("accuracy", "d8"))
    ('MQ, length 2', 'd8: accuracy')
    """
    length = "" if metric.length is None else f", length {metric.length}"
    return ("" if metric.set == "test" else f"{metric.set}: ") + metric.name + length


def in_words(metric: Metric) -> str:
    """The whole metric for people.

    >>> in_words(Metric("accuracy", "validation", "sample"))
    'validation: accuracy, sample'
    """
    return ", ".join(part for part in (measured_on(metric), measured_as(metric)) if part)


@dataclass(frozen=True)
class Layout:
    """Metrics as a grid: a row for what was measured, a column for how it was decoded."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], Metric]


def layout(metrics: Iterable[Metric]) -> Layout:
    """The metrics of a record as a grid.

    Averages stand before single lengths, and what has the same decoder stands side by side.

    >>> beam, both_ways = Metric("MQ", decoder="beam"), Metric("MQ", bidirectional=True)
    >>> grid = layout([Metric("MQ", length=1), Metric("MQ"), beam, both_ways])
    >>> grid.rows, grid.columns
    (('MQ', 'MQ, length 1'), ('argmax', 'argmax, bidirectional', 'beam search'))
    """
    ordered = sorted(metrics, key=lambda metric: metric.length or 0)
    decoders = list(dict.fromkeys(metric.decoder for metric in ordered))
    cells = {(measured_on(metric), measured_as(metric)): metric for metric in ordered}
    by_decoder = sorted(cells.items(), key=lambda item: decoders.index(item[1].decoder))
    rows = tuple(dict.fromkeys(row for row, _ in cells))
    columns = tuple(dict.fromkeys(column for (_, column), _ in by_decoder))
    return Layout(rows, columns, cells)


def mean_and_std(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    """Of what is known; the standard deviation is that of a sample, which one value has not.

    >>> mean_and_std([1.0, None, 3.0]), mean_and_std([1.0]), mean_and_std([None])
    ((2.0, 1.4142135623730951), (1.0, None), (None, None))
    """
    known = [value for value in values if value is not None]
    mean = statistics.fmean(known) if known else None
    return mean, statistics.stdev(known) if len(known) > 1 else None


def spread(mean: float | None, std: float | None, write: Callable[[float], str]) -> str:
    """Both as text; empty where there is no mean.

    >>> spread(2.0, 1.4142, "{:.2f}".format)
    '2.00 ± 1.41'
    """
    if mean is None:
        return ""
    return write(mean) if std is None else f"{write(mean)} ± {write(std)}"
