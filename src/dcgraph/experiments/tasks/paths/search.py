"""Tables by which settings of path queries were chosen: of noise, of short runs, of a search."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from ...engine.settings import Sweep, expand
from ...engine.tables import Column, Row, Table
from . import settings as presets
from .columns import BUDGET, RANKED, validated, when_chosen
from .settings import BEST, DROPOUTS, PAPER, PathSettings, quick, soft

_ONE_SEED = 1
_DRAWS = 20

_BY_LOG = BEST.beta_share
_NOISY = replace(
    soft(quick(PAPER, 10)), lr=1e-2, tau=PAPER.tau, beta_share=1.0, length=3, evaluate_every=5
)
_HARD = replace(_NOISY, tau=1.0, estimator=BEST.estimator)

NOISE = Table(
    name="paths-noise",
    task="paths",
    title=(
        "Noise of the hops on WN11, in per cent; trained on paths of up to 3 relations. beta grows "
        f"to the given share of tau; {_BY_LOG:g} is one over the logarithm of the number of "
        "entities."
    ),
    columns=(Column("H@10, validation", validated), *RANKED[2:], *BUDGET),
    rows=(
        *(
            Row(
                f"tau {tau:g}, share {share:g}",
                (replace(_NOISY, tau=tau, beta_share=share),),
                _ONE_SEED,
            )
            for tau, shares in ((4.0, (1.0, 0.3, _BY_LOG, 0.01)), (1.0, (1.0, _BY_LOG)))
            for share in shares
        ),
        Row("tau 4, share 1, reversed", (replace(_NOISY, noise="reversed"),), _ONE_SEED),
        Row("tau 4, share 1, of the nearest 100", (replace(_NOISY, nearest=100),), _ONE_SEED),
        Row(
            f"tau 1, share {_BY_LOG:g}, vectors start at 1",
            (replace(_NOISY, tau=1.0, beta_share=_BY_LOG, init=PAPER.init),),
            _ONE_SEED,
        ),
        *(
            Row(f"hard, tau 1, share {share:g}", (replace(_HARD, beta_share=share),), _ONE_SEED)
            for share in (1.0, _BY_LOG, 0.01)
        ),
        Row("hard, tau 1, share 1, reversed", (replace(_HARD, noise="reversed"),), _ONE_SEED),
    ),
)


def _short_runs(
    paper: PathSettings, epochs: int, tried: Iterable[tuple[PathSettings, int]]
) -> Iterable[Row]:
    """With the dropout of these settings, and triples so many times; tested by argmax alone."""
    for dropout, triples in tried:
        dropouts = {name: getattr(dropout, name) for name in DROPOUTS}
        settings = replace(quick(paper, epochs), triples=triples, beam=1, **dropouts)
        words = ", ".join(f"{share:g}" for share in dropouts.values())
        often = "once" if triples == 1 else f"{triples} times"
        yield Row(
            f"{paper.graph.upper()}: dropout {words}; triples {often}", (settings,), _ONE_SEED
        )


SHORT = Table(
    name="paths-short",
    task="paths",
    title=(
        "Short runs, to compare settings, in per cent, on validation paths. Dropout of subject, "
        "object, relations; how often an epoch has every triple."
    ),
    columns=(
        Column("MQ, validation", lambda record: when_chosen(record, "MQ/argmax")),
        Column("H@10, validation", lambda record: when_chosen(record, "H@10/argmax")),
        *BUDGET,
    ),
    rows=(
        *_short_runs(PAPER, 4, ((PAPER, triples) for triples in (1, 4, 16))),
        *_short_runs(
            presets.PAPER_FB13,
            2,
            (
                (presets.PAPER_FB13, 1),
                (presets.FB13, 1),
                (presets.FB13, 10),
                (replace(presets.PAPER_FB13, object_dropout=0.3), 10),
            ),
        ),
    ),
)


def _drawn() -> list[PathSettings]:
    """The paper's random search on WN11: dropouts in tenths up to 0.8, L2 in powers of ten."""
    weights = ("l2_entities", "l2_relations")
    sweeps = [Sweep(name, low=0.0, high=0.8) for name in DROPOUTS]
    sweeps += [Sweep(name, low=1e-20, high=1e-5, logarithmic=True) for name in weights]
    base = replace(soft(quick(PAPER, 30)), length=1, choose_on="next")
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
        "Random search on WN11, trained on triples, chosen by H@10 on validation paths of length "
        "2, in per cent. Dropout of subject, object, relations; L2 of entities, relations."
    ),
    columns=(Column("H@10, validation", validated), *RANKED[2:], *BUDGET),
    rows=tuple(Row(_described(one), (one,), _ONE_SEED) for one in _drawn()),
)
