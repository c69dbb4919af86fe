"""The paper's two tables of ListOps, and two more. No torch: they are rendered without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...engine.comparison import Comparison
from ...engine.metrics import Metric
from ...engine.tables import Column, Published, Row, Run, Table, per_cent
from .settings import BEST, COMPARED, PAPER

_MEASURED = {
    "task": ("task accuracy", "test"),
    "edge": ("edge precision", "test"),
    "inter": ("intermediate accuracy", "test"),
    "d8": ("task accuracy", "d8"),
    "d10": ("task accuracy", "d10"),
}
_MORE = {
    "d8, 100 tokens": ("task accuracy", "d8-long"),
    "d10, 100 tokens": ("task accuracy", "d10-long"),
    "critical, depth 5": ("task accuracy", "critical-d5"),
    "critical, depth 8": ("task accuracy", "critical-d8"),
}
_SAMPLE, _ARGMAX = (
    tuple(
        Column(name, per_cent(Metric(metric, of, decoder)), part=decoder)
        for name, (metric, of) in (_MEASURED | _MORE).items()
    )
    for decoder in ("sample", "argmax")
)
COLUMNS = (*_SAMPLE, *_ARGMAX)


def _paper(*numbers: Published | None) -> Mapping[Column, Published]:
    """What the paper says of task, edge, inter, d8 and d10; it decodes by sampling."""
    return {column: n for column, n in zip(_SAMPLE, numbers, strict=False) if n is not None}


_PLAIN = replace(PAPER, tempmatch=False, dropres=False)  # beta = 1, for models without DropRes
_STATES = replace(_PLAIN, model="states")
_TREES = replace(
    _STATES, evaluate_every=10
)  # ten looks at whole trees, which take a while, will do

_PAPER = Run("paper-tau-1", PAPER, probes=True)
_PAPER_TREE_GIVEN = Run("paper-tree-given", replace(PAPER, edges="given"))
_BEST = Run("best", BEST)

_PAPER_ROW = Row(
    "The paper's method, tau 1",
    (_PAPER,),
    _paper((96.1, 0.4), (82.3, 1.1), (70.9, 1.2), (92.6, 1.1), (86.9, 4.9)),
)

LISTOPS = Table(
    name="listops",
    task="listops",
    title="ListOps, in per cent.",
    columns=COLUMNS,
    rows=(
        Row(
            "Und., spanning trees",
            (Run("spanning-tree", replace(_TREES, prior="spanning_tree")),),
            _paper((91.2, 1.8), (33.1, 2.9)),
        ),
        Row(
            "Arb., arborescences",
            (Run("arborescence", replace(_TREES, prior="arborescence")),),
            _paper((95.0, 3.0), (75.0, 7.0)),
        ),
        Row(
            "LSTM",
            (Run("lstm", replace(_PLAIN, model="lstm")),),
            _paper((91.5, 0.3), None, None, (83.7, 2.0), (76.9, 3.7)),
        ),
        Row(
            "Arb., one parent, tau 2",
            (Run("states-one-parent-tau-2", replace(_STATES, tau=2.0)),),
            _paper((96.8, 0.3), (77.4, 1.8), None, (84.3, 1.4), (75.4, 1.7)),
        ),
        _PAPER_ROW,
        Row(
            "The paper's method, tau 2",
            (Run("paper-tau-2", replace(PAPER, tau=2.0)),),
            _paper((96.3, 0.5), (76.8, 2.2), (62.9, 2.4), (92.7, 1.3), (88.7, 3.3)),
        ),
        Row(
            "Arb., the tree given",
            (Run("states-tree-given", replace(_STATES, edges="given")),),
            _paper((98.7, 0.1), (100.0, 0.0), None, (86.4, 1.1), (71.0, 2.1)),
        ),
        Row(
            "The paper's method, the tree given",
            (_PAPER_TREE_GIVEN,),
            _paper((99.8, 0.1), (100.0, 0.0), (99.9, 0.0), (99.8, 0.1), (99.9, 0.1)),
        ),
        Row("Our variant (preset best)", (_BEST,)),
    ),
)

ABLATION = Table(
    name="listops-ablation",
    task="listops",
    title="ListOps without parts of the method (tau 1), in per cent.",
    columns=COLUMNS,
    rows=(
        _PAPER_ROW,
        Row(
            "without TempMatch (beta = 1)",
            (Run("without-tempmatch", replace(PAPER, tempmatch=False), probes=True),),
            _paper((95.1, 1.7), (76.9, 12.1), (66.3, 9.2), (90.5, 2.4), (83.7, 4.0)),
        ),
        Row(
            "without DropRes (alpha = 1)",
            (Run("without-dropres", replace(PAPER, dropres=False), probes=True),),
            _paper((74.8, 11.5), (43.9, 30.3), (29.4, 18.6), (70.5, 9.3), (66.7, 8.8)),
        ),
        Row(
            "without both",
            (Run("without-both", _PLAIN, probes=True),),
            _paper((56.2, 5.0), (15.1, 7.7), (12.7, 3.2), (53.1, 6.6), (49.2, 7.1)),
        ),
        Row("residual always on", (Run("residual-always", replace(PAPER, residual="always")),)),
        Row("residual weighted", (Run("residual-weighted", replace(PAPER, residual="weighted")),)),
    ),
)

# A fifth of the epochs, and schedules five times as fast.
_SHORT = replace(
    PAPER, epochs=PAPER.epochs // 5, gamma=5 * PAPER.gamma, alpha_step=5 * PAPER.alpha_step
)

MASKS = Table(
    name="listops-masks",
    task="listops",
    title=(
        "The paper's method with tau 1 and 20 epochs in place of 100, by the dropout of messages, "
        "in per cent."
    ),
    columns=COLUMNS,
    rows=(
        Row("a mask for a sender and a token", (Run("masks-token", _SHORT),)),
        Row(
            "a mask for each pair, as the paper",
            (Run("masks-pair", replace(_SHORT, masks="pair")),),
        ),
    ),
)

_OPERATORS = replace(PAPER, earlier=True, parents="operators")
_RECIPE = replace(BEST, encoder="lstm", senders="tokens", restart=False)

LADDER = Table(
    name="listops-ladder",
    task="listops",
    title=(
        "ListOps by what is given, in per cent: each row from the paper's method to preset best is "
        "given what the rows before it are, and one thing more."
    ),
    columns=COLUMNS,
    rows=(
        Row(
            "A rule: the nearest operator before",
            (Run("nearest-operator", replace(PAPER, model="nearest_operator", epochs=0), seeds=1),),
            given="all: a rule for the tree, exact operators; nothing is learned",
        ),
        Row(
            "The paper's method, untrained",
            (Run("paper-untrained", replace(PAPER, epochs=0)),),
            given="each token has one parent; nothing is learned",
        ),
        Row(
            "Preset best, untrained",
            (Run("best-untrained", replace(BEST, epochs=0)),),
            given="all that preset best is given; nothing is learned",
        ),
        replace(_PAPER_ROW, given="each token has one parent"),
        Row(
            "+ silent root, no self-loop",
            (Run("ladder-silent-root", replace(PAPER, silent_root=True)),),
            given="the root sends nothing, no token is its own parent",
        ),
        Row(
            "+ parent before child",
            (Run("ladder-earlier", replace(PAPER, earlier=True)),),
            given="a parent stands before its child",
        ),
        Row(
            "+ operator parents",
            (Run("ladder-operators", _OPERATORS),),
            given="a parent is an operator",
        ),
        Row(
            "trained as preset best",
            (Run("ladder-recipe", _RECIPE),),
            given="nothing more: another recipe (tau 2, learning rate, averages, no dropout)",
        ),
        Row(
            "counters in place of LSTMs",
            (Run("ladder-counters", replace(_RECIPE, encoder="counters")),),
            given="what counts is a sum over the tokens before",
        ),
        Row(
            "+ nearest match, root",
            (Run("ladder-nearest", replace(_RECIPE, encoder="nearest")),),
            given="the nearest match is the parent, the root takes the rest",
        ),
        Row(
            "+ ternary counters",
            (Run("ladder-ternary", replace(_RECIPE, encoder="ternary")),),
            given="at test a token moves a counter by -g, 0 or g",
        ),
        Row(
            "+ silent ]",
            (Run("ladder-silent-bracket", replace(BEST, restart=False)),),
            given="] sends nothing",
        ),
        Row(
            "+ restart: preset best",
            (_BEST,),
            given="a value comes only from the children's",
        ),
        Row(
            "The paper's method, the tree given",
            (_PAPER_TREE_GIVEN,),
            given="the tree, and nothing else of the above",
        ),
    ),
)

COMPARISON = Comparison(
    "listops", COMPARED, Metric("accuracy"), "ListOps of up to 3 levels and 19 tokens"
)
ESTIMATORS, PLANE = COMPARISON.estimators(), COMPARISON.plane()
