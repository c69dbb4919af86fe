"""Tables of long chains: sums of many digits, and numbers of many digits with a learned carry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...engine.metrics import Metric
from ...engine.records import Record
from ...engine.tables import Column, Row, Run, Table, per_cent
from .settings import CARRY, LENGTHS, SUMS


def _ceiling(record: Record) -> float | None:
    """What reading allows: all digits right, and then no error in adding."""
    read = record.value(Metric("digit accuracy"))
    return None if read is None else 100 * read ** float(record.settings["summands"])


def _long(summands: int, epochs: int) -> Row:
    settings = replace(SUMS, summands=summands, epochs=epochs, alpha_step=0.5 / epochs)
    return Row(f"{summands} summands", (Run(f"sums-{summands}", settings),))


LONG_SUMS = Table(
    name="addition-sums",
    task="addition",
    title=(
        "Sums of n MNIST digits, a discrete choice at each digit and after each addition (preset "
        "sums, by argmax), accuracy in per cent."
    ),
    columns=(
        Column("sums", per_cent(Metric("accuracy"))),
        Column("if adding made no error", _ceiling),
        Column("digits", per_cent(Metric("digit accuracy"))),
        Column("addition table", per_cent(Metric("addition table accuracy"))),
    ),
    rows=(_long(3, 30), _long(5, 30), _long(8, 60)),
)


def _part(name: str, run: str, **changes: Any) -> Row:
    return Row(name, (Run(f"sums-5-{run}", replace(SUMS, **changes), seeds=3),))


SUMS_ABLATION = replace(
    LONG_SUMS,
    name="addition-sums-ablation",
    title=(
        "Sums of five MNIST digits: preset sums with one part changed (by argmax), accuracy in per "
        "cent."
    ),
    rows=(
        replace(LONG_SUMS.rows[1], name="preset sums"),
        _part("only sums of five", "one-length", lengths="one"),
        _part("rows of their own for sums on the way", "own-rows", sums="own"),
        _part("with TempMatch", "tempmatch", tempmatch=True, gamma=1 / 60),
        _part("without DropRes", "no-dropres", dropres=False),
    ),
)

_WRONG_ENTRIES = Metric("cell entries wrong", decoder=None)

CARRIES = Table(
    name="addition-carry",
    task="addition",
    title=(
        "Two numbers of N digits, added column by column with a learned carry (preset carry): how "
        "many of the sums of longer and shorter numbers are right, in per cent."
    ),
    columns=(
        *(
            Column(f"N = {length}", per_cent(Metric("accuracy", length=length)), "sums", digits=1)
            for length in LENGTHS[:-1]
        ),
        Column(
            "exact cells",
            lambda record: 100.0 * (record.value(_WRONG_ENTRIES) == 0),
            "cells",
            digits=0,
            spread=False,
        ),
        Column(
            "no digit lost",
            lambda record: 100.0 * ((record.value(Metric("digit accuracy")) or 0.0) > 0.95),
            "cells",
            digits=0,
            spread=False,
        ),
        Column(
            f"added right, N = {LENGTHS[-1]:,}",
            per_cent(Metric("added right", length=LENGTHS[-1])),
            "cells",
            digits=0,
            spread=False,
        ),
        Column(
            "symbols",
            lambda record: record.value(Metric("symbols in use", decoder=None)),
            "cells",
            digits=1,
        ),
    ),
    rows=tuple(
        Row(
            f"trained on N = {digits}",
            (Run(f"carry-{digits}", replace(CARRY, digits=digits)),),
        )
        for digits in (4, 2)
    ),
)
