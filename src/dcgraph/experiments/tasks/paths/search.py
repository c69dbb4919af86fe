"""Hyper-parameter search of path queries: the tables of runs that compare settings.

NOISE compares distributions and scales of the noise of the hops. SHORT compares dropout and how
often triples are trained on, in short runs. SEARCH is the paper's random search, over dropout and
L2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from ...engine.metrics import Metric
from ...engine.records import Record
from ...engine.settings import Sweep, expand
from ...engine.tables import Column, Row, Run, Table, times_100
from . import settings as presets
from .settings import BEST, DROPOUTS, PAPER, PathSettings, quick, soft
from .tables import BUDGET, REALISTIC

_DRAWS = 20

_BY_LOG = BEST.beta_share
_SHARES = {"1": 1.0, "0.3": 0.3, "log": _BY_LOG, "0.01": 0.01}  # of tau, by name
_NOISY = replace(
    soft(quick(PAPER, 10)), lr=1e-2, tau=PAPER.tau, beta_share=1.0, length=3, evaluate_every=5
)
_HARD = replace(_NOISY, tau=1.0, estimator=BEST.estimator)


def _validated(record: Record) -> float | None:
    """What the weights were selected by, at its best."""
    return times_100(record.when_selected(record.selection.metric))


def _when_selected(name: str, record: Record) -> float | None:
    """A metric of the validation split when the weights were selected."""
    return times_100(record.when_selected(Metric(name, "validation")))


def _row(name: str, run: str, settings: PathSettings) -> Row:
    return Row(name, (Run(run, settings, seeds=1),))


def _noise_row(name: str, run: str, base: PathSettings, **changes: object) -> Row:
    settings = replace(base, **changes)  # type: ignore[arg-type]
    return _row(name, f"wn11-noise-{run}", settings)


NOISE = Table(
    name="paths-noise",
    task="paths",
    title=(
        "Noise of the hops on WN11, in per cent; trained on paths of up to 3 relations. beta grows "
        f"to the given share of tau; {_BY_LOG:g} is one over the logarithm of the number of "
        "entities."
    ),
    columns=(Column("H@10", _validated, "validation"), *REALISTIC, *BUDGET),
    rows=(
        *(
            _noise_row(
                f"tau {tau:g}, share {_SHARES[run]:g}",
                f"tau-{tau:g}-share-{run}",
                _NOISY,
                tau=tau,
                beta_share=_SHARES[run],
            )
            for tau, runs in ((4.0, ("1", "0.3", "log", "0.01")), (1.0, ("1", "log")))
            for run in runs
        ),
        _noise_row("tau 4, share 1, reversed", "reversed", _NOISY, noise="reversed"),
        _noise_row("tau 4, share 1, only the top 100", "top-100", _NOISY, top_k=100),
        _noise_row(
            f"tau 1, share {_BY_LOG:g}, vectors start at 1",
            "init-1",
            _NOISY,
            tau=1.0,
            beta_share=_BY_LOG,
            init=PAPER.init,
        ),
        *(
            _noise_row(
                f"hard, tau 1, share {_SHARES[run]:g}",
                f"hard-share-{run}",
                _HARD,
                beta_share=_SHARES[run],
            )
            for run in ("1", "log", "0.01")
        ),
        _noise_row("hard, tau 1, share 1, reversed", "hard-reversed", _HARD, noise="reversed"),
    ),
)


def _short_runs(
    graph: str, paper: PathSettings, epochs: int, tried: Iterable[tuple[str, PathSettings, int]]
) -> Iterable[Row]:
    """With the dropout of these settings, and triples so many times; tested only by argmax."""
    for name, dropout, triples in tried:
        dropouts = {name: getattr(dropout, name) for name in DROPOUTS}
        settings = replace(quick(paper, epochs), triples=triples, beam=1, **dropouts)
        words = ", ".join(f"{share:g}" for share in dropouts.values())
        often = "once" if triples == 1 else f"{triples} times"
        yield _row(
            f"{graph.upper()}: dropout {words}; triples {often}",
            f"{graph}-short-{name}-triples-{triples}",
            settings,
        )


SHORT = Table(
    name="paths-short",
    task="paths",
    title=(
        "Short runs, to compare settings, in per cent, on validation paths. Dropout of subject, "
        "object, relations; how often an epoch has every triple."
    ),
    columns=(
        Column("MQ", partial(_when_selected, "MQ"), "validation"),
        Column("H@10", partial(_when_selected, "H@10"), "validation"),
        *BUDGET,
    ),
    rows=(
        *_short_runs(
            "wn11", PAPER, 4, (("paper-dropout", PAPER, triples) for triples in (1, 4, 16))
        ),
        *_short_runs(
            "fb13",
            presets.PAPER_FB13,
            2,
            (
                ("paper-dropout", presets.PAPER_FB13, 1),
                ("less-dropout", presets.FB13, 1),
                ("less-dropout", presets.FB13, 10),
                ("object-dropout-0.3", replace(presets.PAPER_FB13, object_dropout=0.3), 10),
            ),
        ),
    ),
)


def _drawn() -> list[PathSettings]:
    """The paper's random search on WN11: dropouts in tenths up to 0.8, L2 in powers of ten."""
    weights = ("l2_entities", "l2_relations")
    sweeps = [Sweep(name, low=0.0, high=0.8) for name in DROPOUTS]
    sweeps += [Sweep(name, low=1e-20, high=1e-5, logarithmic=True) for name in weights]
    base = replace(soft(quick(PAPER, 30)), length=1, validate_on="next")
    return [
        replace(
            one,
            subject_dropout=round(one.subject_dropout, 1),
            object_dropout=round(one.object_dropout, 1),
            relation_dropout=round(one.relation_dropout, 1),
            l2_entities=_power_of_ten(one.l2_entities),
            l2_relations=_power_of_ten(one.l2_relations),
        )
        for one in expand(base, sweeps, draws=_DRAWS)
    ]


def _power_of_ten(value: float) -> float:
    return float(f"1e{round(math.log10(value))}")


def _described(one: PathSettings) -> str:
    return (
        f"dropout {one.subject_dropout:g}, {one.object_dropout:g}, {one.relation_dropout:g}; "
        f"L2 {one.l2_entities:g}, {one.l2_relations:g}"
    )


SEARCH = Table(
    name="paths-search",
    task="paths",
    title=(
        "Random search on WN11, trained on triples, selected by H@10 on validation paths of length "
        "2, in per cent. Dropout of subject, object, relations; L2 of entities, relations."
    ),
    columns=(Column("H@10", _validated, "validation"), *REALISTIC, *BUDGET),
    rows=tuple(
        _row(_described(one), f"wn11-search-{number:02}", one)
        for number, one in enumerate(_drawn(), 1)
    ),
)
