"""The paper's table of MNIST addition, and ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...engine.records import Record
from ...engine.tables import Column, Row, Table
from .settings import BEST, CHAIN, PAPER, AdditionSettings


def _both_protocols(settings: AdditionSettings) -> tuple[AdditionSettings, ...]:
    return replace(settings, protocol="paper"), replace(settings, protocol="clean")


def _best_on_test(decode: str) -> Callable[[Record], float | None]:
    """The paper's protocol: the best of all evaluations on the test set."""

    def value(record: Record) -> float | None:
        if record["settings"]["protocol"] != "paper":
            return None
        # A model without nodes has nothing to sample: one number serves both.
        looks = [
            look.get(f"accuracy/{decode}", look["accuracy/argmax"]) for look in record["curve"]
        ]
        return 100 * max((look or 0.0 for look in looks), default=0.0)

    return value


def _chosen_on_validation(decode: str) -> Callable[[Record], float | None]:
    """The clean protocol: weights chosen on held-out pairs, the test set looked at once."""

    def value(record: Record) -> float | None:
        if record["settings"]["protocol"] != "clean":
            return None
        test = record["test"]
        return 100 * (test.get(f"accuracy/{decode}", test["accuracy/argmax"]) or 0.0)

    return value


def _best_on_validation(record: Record) -> float | None:
    return 100 * max((look["accuracy/argmax"] or 0.0 for look in record["curve"]), default=0.0)


def _read_out(name: str) -> Callable[[Record], float | None]:
    def value(record: Record) -> float | None:
        if record["settings"]["protocol"] != "clean" or name not in record["readout"]:
            return None
        return 100 * float(record["readout"][name])

    return value


COLUMNS = (
    Column("best on test, sample", _best_on_test("sample")),
    Column("best on test, argmax", _best_on_test("argmax")),
    Column("clean, sample", _chosen_on_validation("sample")),
    Column("clean, argmax", _chosen_on_validation("argmax")),
    Column("digits", _read_out("digit accuracy")),
    Column("addition table", _read_out("table accuracy")),
)

_ONE_EPOCH = replace(PAPER, epochs=1, lr=1e-3)
_CNN = replace(PAPER, model="cnn", lr=1e-3)
_DEEPPROBLOG = replace(PAPER, model="deepproblog", lr=1e-3)
_SAYS = COLUMNS[0].name

ADDITION = Table(
    name="addition",
    task="addition",
    title="MNIST addition, accuracy in per cent.",
    columns=COLUMNS,
    rows=(
        Row(
            "CNN baseline, 1 epoch, batch 2",
            _both_protocols(replace(_ONE_EPOCH, model="cnn", batch=2)),
            paper={_SAYS: (89.14, 1.22)},
        ),
        Row("CNN baseline, 30 epochs, batch 16", _both_protocols(_CNN)),
        Row(
            "DeepProbLog, 1 epoch, batch 1",
            _both_protocols(replace(_ONE_EPOCH, model="deepproblog", batch=1)),
            paper={_SAYS: (98.17, 0.20)},
        ),
        Row("DeepProbLog, 30 epochs, batch 16", _both_protocols(_DEEPPROBLOG)),
        Row("Ours, tau 8", _both_protocols(PAPER), paper={_SAYS: (98.10, 0.15)}),
        Row("Ours, tau 8, lr 0.0003", _both_protocols(replace(PAPER, lr=3e-4))),
        Row("Ours, tau 8, lr 0.0005", _both_protocols(replace(PAPER, lr=5e-4))),
        Row("Ours, preset best", _both_protocols(BEST)),
    ),
)

LEARNING_RATES = Table(
    name="addition-lr",
    task="addition",
    title="MNIST addition, ours at the learning rates the paper tried, accuracy in per cent.",
    columns=(
        Column("validation", _best_on_validation),
        *COLUMNS[2:],
    ),
    rows=tuple(
        Row(f"lr {lr:g}", (replace(PAPER, protocol="clean", lr=lr),))
        for lr in (1e-4, 3e-4, 5e-4, 1e-3)
    ),
)


def _ablation(name: str, title: str, base: AdditionSettings) -> Table:
    without: tuple[tuple[str, dict[str, Any]], ...] = (
        ("TempMatch and DropRes", {}),
        ("DropRes alone (beta = 1)", {"tempmatch": False}),
        ("TempMatch alone (alpha = 1)", {"dropres": False}),
        ("neither", {"tempmatch": False, "dropres": False}),
        ("neither, tau annealed", {"tempmatch": False, "dropres": False, "anneal": True}),
    )
    return Table(
        name=name,
        task="addition",
        title=title,
        columns=COLUMNS[2:],
        rows=tuple(
            Row(row, (replace(base, protocol="clean", **changes),)) for row, changes in without
        ),
    )


ABLATION = _ablation(
    "addition-ablation",
    "MNIST addition without parts of the method (lr 0.0003), accuracy in per cent.",
    replace(PAPER, lr=3e-4),
)
CHAIN_ABLATION = _ablation(
    "addition-chain",
    "Three summands, a chain of two additions (preset chain), accuracy in per cent.",
    CHAIN,
)


SCHEMES: dict[str, dict[str, Any]] = {
    "base": {"tempmatch": False},
    "TauAnn": {"tempmatch": False, "anneal": True},
    "TempMatch": {},
}
"""Figure 4 of the paper: tau and beta constant, tau annealed, beta growing towards tau."""


def annealing_row(summands: int, dropres: bool, scheme: str) -> Row:
    """Nine runs of a scheme, none dropped, at the settings of Figure 4."""
    settings = replace(
        PAPER, protocol="clean", lr=3e-4, summands=summands, dropres=dropres, **SCHEMES[scheme]
    )
    residual = ", DropRes" if dropres else ""
    return Row(f"{summands} summands{residual}, {scheme}", (settings,), seeds=9)


def epoch_of(record: Record, accuracy: float) -> float | None:
    """When a run first reached an accuracy on the held-out examples, in epochs; None for never."""
    per_epoch = record["steps"] / record["settings"]["epochs"]
    for look in record["curve"]:
        if (look["accuracy/argmax"] or 0.0) >= accuracy:
            return float(look["step"] / per_epoch)
    return None


def _reached(accuracy: float) -> tuple[Column, Column]:
    return (
        Column(
            f"reached {accuracy:g} (%)",
            lambda record: 0.0 if epoch_of(record, accuracy) is None else 100.0,
            digits=0,
            spread=False,
        ),
        Column(
            f"at epoch ({accuracy:g})",
            lambda record: epoch_of(record, accuracy),
            digits=1,
        ),
    )


ANNEALING = Table(
    name="annealing",
    task="addition",
    title=(
        "Annealing schemes (tau 8, lr 0.0003, batch 16, 30 epochs), accuracy in per cent; epochs "
        "are those of the runs that arrived."
    ),
    columns=(
        Column("test accuracy", _chosen_on_validation("argmax")),
        *_reached(0.9),
        *_reached(0.97),
    ),
    rows=tuple(
        annealing_row(summands, dropres, scheme)
        for summands in (2, 3)
        for dropres in (False, True)
        for scheme in SCHEMES
    ),
)
