"""What tables of path queries show of a record."""

from __future__ import annotations

from collections.abc import Callable

from ...engine.records import Record
from ...engine.tables import Column
from .arranging import ARGMAX_BACK, BACK, BEAM, WAYS

LENGTHS = range(1, 11)


def tested(name: str) -> Callable[[Record], float | None]:
    return lambda record: _per_cent(record["test"].get(f"{name}/argmax"))


def read_out(name: str) -> Callable[[Record], float | None]:
    return lambda record: _per_cent(record["readout"].get(name))


def validated(record: Record) -> float | None:
    """What the weights were chosen by, at its best."""
    return when_chosen(record, record["chosen_by"])


def when_chosen(record: Record, name: str) -> float | None:
    """What the look says whose weights were chosen."""
    looks = [look for look in record["curve"] if look["step"] == record["chosen_at"]]
    return _per_cent(looks[0][name]) if looks else None


def _per_cent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _minutes(record: Record) -> float:
    """A run's share of the time of the population that it was trained in."""
    return float(record["seconds"] / record["population"]["size"] / 60)


BUDGET = (
    Column("epochs", lambda record: float(record["settings"]["epochs"]), digits=0, spread=False),
    Column("minutes a run", _minutes, digits=1, spread=False),
)
RANKED = (
    Column("MQ, ties as the paper", read_out("MQ, ties as the paper")),
    Column("H@10, ties as the paper", read_out("H@10, ties as the paper")),
    Column("MQ, realistic ties", tested("MQ")),
    Column("H@10, realistic ties", tested("H@10")),
)
BY_OTHER_WAYS = tuple(
    Column(f"{name}, {WAYS[way]}", read_out(f"{name}, {way}"))
    for way in (BEAM, ARGMAX_BACK, BACK)
    for name in ("MQ", "H@10")
)


def mrr_by_length(way: str = "") -> tuple[Column, ...]:
    return tuple(
        Column(f"{hops}", read_out(f"MRR{way}, length {hops}"), digits=1) for hops in LENGTHS
    )
