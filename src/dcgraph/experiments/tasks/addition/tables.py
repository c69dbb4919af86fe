"""The paper's table of MNIST addition beside our runs, and tables of what the method needs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from ...engine.comparison import Comparison
from ...engine.metrics import Decoder, Metric
from ...engine.records import Record
from ...engine.tables import Column, Row, Run, Table, per_cent
from .settings import BEST, CHAIN, COMPARED, PAPER, AdditionSettings

SCHEMES: dict[str, dict[str, Any]] = {
    "base": {"tempmatch": False},
    "TauAnn": {"tempmatch": False, "anneal": True},
    "TempMatch": {},
}
"""Figure 4 of the paper: tau and beta constant, tau annealed, beta growing towards tau."""


def _variant(
    name: str,
    whole: AdditionSettings,
    scheme: str,
    dropres: bool,
    seeds: int = 8,
    probed: bool = False,
) -> Run:
    """A run without parts of the method, named by what is not as in the whole."""
    parts = [name]
    if scheme != "TempMatch":
        parts.append(scheme.lower())
    if not dropres:
        parts.append("no-dropres")
    settings = replace(whole, protocol="clean", dropres=dropres, **SCHEMES[scheme])
    return Run("-".join(parts), settings, seeds, probes=probed, categories=probed)


_LR_0003 = replace(PAPER, lr=3e-4)
_PROBED = (("TempMatch", False), ("base", False))  # scheme and DropRes in the figure `category`


def _both_protocols(name: str, settings: AdditionSettings) -> tuple[Run, Run]:
    """The paper's protocol, which selects weights on the test set, and the clean one."""
    return (
        Run(f"{name}-test-selected", replace(settings, protocol="paper")),
        Run(name, replace(settings, protocol="clean")),
    )


_Value = Callable[[Record], float | None]


def _by(protocol: str, value: _Value) -> _Value:
    """A number of the runs by a protocol; None for all others."""
    return lambda record: value(record) if record.settings["protocol"] == protocol else None


def _best_on_test(decoder: Decoder) -> _Value:
    """The paper's protocol: the best of all evaluations on the test set."""
    return _by("paper", lambda record: 100 * _best(record, "test", decoder))


def _best(record: Record, split: str, decoder: Decoder) -> float:
    """The best accuracy of all evaluations in training."""
    curves = record.curve.metrics
    # A model without nodes has nothing to sample: one number serves both.
    by_argmax = curves[Metric("accuracy", split)]
    values = curves.get(Metric("accuracy", split, decoder), by_argmax)
    return max((value or 0.0 for value in values), default=0.0)


def _selected_on_validation(decoder: Decoder) -> _Value:
    """The clean protocol: weights selected on held-out pairs, the test set looked at once."""

    def value(record: Record) -> float | None:
        by_argmax = record.metrics[Metric("accuracy")]
        return 100 * (record.metrics.get(Metric("accuracy", decoder=decoder), by_argmax) or 0.0)

    return _by("clean", value)


_ON_TEST = Column("best on test", _best_on_test("sample"), "sample")
_CLEAN = (
    Column("clean", _selected_on_validation("sample"), "sample"),
    Column("clean", _selected_on_validation("argmax"), "argmax"),
    Column("digits", _by("clean", per_cent(Metric("digit accuracy")))),
    Column("addition table", _by("clean", per_cent(Metric("addition table accuracy")))),
)
COLUMNS = (_ON_TEST, Column("best on test", _best_on_test("argmax"), "argmax"), *_CLEAN)

_ONE_EPOCH = replace(PAPER, epochs=1, lr=1e-3)

ADDITION = Table(
    name="addition",
    task="addition",
    title="MNIST addition, accuracy in per cent.",
    columns=COLUMNS,
    rows=(
        Row(
            "CNN baseline, 1 epoch, batch 2",
            _both_protocols("cnn-1-epoch", replace(_ONE_EPOCH, model="cnn", batch=2)),
            {_ON_TEST: (89.14, 1.22)},
        ),
        Row(
            "CNN baseline, 30 epochs, batch 16",
            _both_protocols("cnn-30-epochs", replace(PAPER, model="cnn", lr=1e-3)),
        ),
        Row(
            "DeepProbLog, 1 epoch, batch 1",
            _both_protocols(
                "deepproblog-1-epoch", replace(_ONE_EPOCH, model="deepproblog", batch=1)
            ),
            {_ON_TEST: (98.17, 0.20)},
        ),
        Row(
            "DeepProbLog, 30 epochs, batch 16",
            _both_protocols("deepproblog-30-epochs", replace(PAPER, model="deepproblog", lr=1e-3)),
        ),
        Row(
            "The paper's method, tau 8",
            _both_protocols("lr-0.0001", PAPER),
            {_ON_TEST: (98.10, 0.15)},
        ),
        Row(
            "The paper's method, tau 8, lr 0.0003",
            _both_protocols("lr-0.0003", _LR_0003),
        ),
        Row(
            "The paper's method, tau 8, lr 0.0005",
            _both_protocols("lr-0.0005", replace(PAPER, lr=5e-4)),
        ),
        Row("Our variant (preset best)", _both_protocols("best", BEST)),
    ),
)

LEARNING_RATES = Table(
    name="addition-lr",
    task="addition",
    title=(
        "MNIST addition, the paper's method at the learning rates the paper tried, accuracy in per "
        "cent."
    ),
    columns=(
        Column("validation", lambda record: 100 * _best(record, "validation", "argmax")),
        *_CLEAN,
    ),
    rows=tuple(
        Row(f"lr {lr:g}", (Run(f"lr-{lr:g}", replace(PAPER, protocol="clean", lr=lr)),))
        for lr in (1e-4, 3e-4, 5e-4, 1e-3)
    ),
)


def _ablation(
    name: str,
    title: str,
    run: str,
    whole: AdditionSettings,
    probed: Collection[tuple[str, bool]] = (),
) -> Table:
    without = (
        ("TempMatch and DropRes", "TempMatch", True),
        ("DropRes only (beta = 1)", "base", True),
        ("TempMatch only (alpha = 1)", "TempMatch", False),
        ("neither", "base", False),
        ("neither, tau annealed", "TauAnn", False),
    )
    return Table(
        name=name,
        task="addition",
        title=title,
        columns=_CLEAN,
        rows=tuple(
            Row(
                row,
                (_variant(run, whole, scheme, dropres, probed=(scheme, dropres) in probed),),
            )
            for row, scheme, dropres in without
        ),
    )


ABLATION = _ablation(
    "addition-ablation",
    "MNIST addition without parts of the method (lr 0.0003), accuracy in per cent.",
    "lr-0.0003",
    _LR_0003,
    _PROBED,
)
CHAIN_ABLATION = _ablation(
    "addition-chain",
    "Three summands, a chain of two additions (preset chain), accuracy in per cent.",
    "chain",
    CHAIN,
)


def annealing_row(summands: int, dropres: bool, scheme: str) -> Row:
    """Nine runs of a scheme, none dropped, at the settings of Figure 4."""
    name = "lr-0.0003" if summands == 2 else "lr-0.0003-three-summands"
    probed = summands == 2 and (scheme, dropres) in _PROBED
    run = _variant(name, replace(_LR_0003, summands=summands), scheme, dropres, 9, probed)
    residual = ", DropRes" if dropres else ""
    return Row(f"{summands} summands{residual}, {scheme}", (run,))


def epoch_of(record: Record, accuracy: float) -> float | None:
    """When a run first reached an accuracy on the held-out examples, in epochs; None for never."""
    held_out = record.curve.metrics[Metric("accuracy", "validation")]
    for step, value in zip(record.curve.step, held_out, strict=True):
        if (value or 0.0) >= accuracy:
            return step / record.steps_per_epoch
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
        Column("test accuracy", _selected_on_validation("argmax")),
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


COMPARISON = Comparison(
    "addition", COMPARED, Metric("accuracy"), "Three handwritten digits, their sum"
)
ESTIMATORS, PLANE = COMPARISON.estimators(), COMPARISON.plane()
