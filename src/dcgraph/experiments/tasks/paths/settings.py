"""Settings of path queries: the paper's for each graph, our variant's, and small ones."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from ...engine.settings import Settings, per_replica, setting

S = TypeVar("S", bound=Settings)

HEADS = 4
"""Of the attention of `coke`."""

INVERSE_TEMPERATURE, BIDIRECTIONAL_WEIGHT = "inverse temperature", "bidirectional weight"
"""What is calibrated on the validation split: the names of the numbers."""

DROPOUTS = ("subject_dropout", "object_dropout", "relation_dropout")

_ENTITIES = {"wn11": 38_696, "fb13": 75_043, "fb15k-237": 14_541}


@dataclass(frozen=True, kw_only=True)
class PathSettings(Settings):
    """Settings of the task of path queries."""

    batch: int = setting(512, "examples per step")
    schedule_steps: int = setting(3, "steps of the schedules of tau, beta and alpha per epoch")
    evaluations: int = setting(1, "evaluations per epoch")
    lr: float = per_replica(1e-3, "learning rate of Adam")
    tau: float = per_replica(4.0, "temperature of the nodes")
    graph: str = setting(
        "wn11", "wn11, fb13, fb15k-237, wn18rr, nations, umls, kinships; or a folder or file"
    )
    length: int = setting(5, "longest paths to train on")
    triples: int = setting(1, "how often an epoch has every triple; longer paths are in it once")
    model: Literal[
        "discrete", "complex", "distmult", "bilinear", "transe", "rnn", "rop", "coke"
    ] = setting("discrete", "the discrete ComplEx; or a baseline")
    protocol: Literal["range", "all"] = setting(
        "range", "candidates for an answer: the range of the last relation, or all entities"
    )
    monitor: Literal["MQ", "MRR", "H@10"] = setting(
        "H@10", "validation metric by which the best weights are kept"
    )
    validate_on: Literal["all", "trained", "next"] = setting(
        "all", "validation paths for that: all; of the lengths trained on; longer by one"
    )
    inverse: Literal["none", "triples", "paths"] = setting(
        "triples", "whose inverses are also trained on: from end to start, by inverse relations"
    )
    dim: int = setting(
        256, "complex numbers in a vector; other models have twice as many real ones"
    )
    init: float = setting(1.0, "vectors start between -init and init")
    subject_dropout: float = setting(0.0, "dropout of the source's vector")
    object_dropout: float = setting(0.0, "dropout of the vectors that answers are scored with")
    relation_dropout: float = setting(0.0, "dropout of the relations' vectors")
    l2_entities: float = setting(0.0, "L2 of the entities' vectors")
    l2_relations: float = setting(0.0, "L2 of the relations' vectors")
    noise: Literal["gumbel", "reversed"] = setting(
        "gumbel", "noise of the hops: as in the paper, or with the sign of its released code"
    )
    top_k: int = setting(0, "a hop of training chooses among the k best-scored entities; 0: all")
    gate: Literal["call", "vector"] = setting("call", "what shares a draw of the gate")
    precision: Literal["float32", "tf32", "bf16"] = setting(
        "float32", "of products with all entities in training, on CUDA; bf16 everywhere"
    )
    beam: int = setting(
        16, "width of the beam search of a second test, after the one by argmax; 1: no such test"
    )
    layers: int = setting(6, "layers of coke")
    dropout: float = setting(0.1, "dropout inside coke")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("length", "triples", "dim", "beam", "layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}, but at least 1 is needed.")
        for name in (*DROPOUTS, "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}, but a share lies in [0, 1).")
        for name in ("l2_entities", "l2_relations"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)}, but a weight is at least 0.")
        if self.estimator == "enumeration" and self.length > 1:
            raise ValueError(
                "estimator='enumeration' would run the network entities^hops times; use one that "
                "draws."
            )
        if self.top_k < 0:
            raise ValueError(f"top_k={self.top_k}, but a number of entities is at least 0.")
        if self.init <= 0:
            raise ValueError(f"init={self.init}, but vectors that start at 0 stay there; use > 0.")
        measured = {"range": ("MQ", "H@10"), "all": ("MRR", "H@10")}[self.protocol]
        if self.monitor not in measured:
            raise ValueError(
                f"monitor={self.monitor!r} is not measured by protocol {self.protocol!r}; "
                f"use {' or '.join(measured)}."
            )
        if self.model == "coke" and 2 * self.dim % HEADS:
            raise ValueError(f"dim={self.dim}, but coke has {HEADS} heads; use an even number.")

    def trains_inverse(self, hops: int) -> bool:
        """Whether the inverses of paths of a length are trained on, too."""
        return self.inverse == "paths" or (self.inverse == "triples" and hops == 1)


def compressed(settings: S, epochs: int) -> S:
    """The same schedules in fewer epochs, or more: dials and evaluations keep their shares of them.

    >>> short = compressed(PAPER, 20)
    >>> short.gamma, short.alpha_step, short.evaluate_every
    (0.08, 0.05, 1)
    """
    times = settings.epochs / epochs
    return replace(
        settings,
        epochs=epochs,
        gamma=float(f"{settings.gamma * times:.4g}"),
        alpha_step=float(f"{settings.alpha_step * times:.4g}"),
        evaluate_every=max(1, round(settings.evaluate_every / times)),
    )


def quick(paper: PathSettings, epochs: int) -> PathSettings:
    """The paper's model in fewer epochs, changed in what our experiments found to train better.

    Vectors start small, and the learning rate is higher for half of the steps and then falls to 0.
    A hop chooses at the temperature of the loss, so that training makes the probabilities of its
    choice those of the answers, with noise whose largest value stays at tau. It goes on from the
    one entity chosen, as in tests, and not from a mixture.
    """
    if paper.graph not in _ENTITIES:
        raise ValueError(
            f"the number of entities of {paper.graph!r} is not known here, only of "
            f"{', '.join(_ENTITIES)}; set beta_share, one over its logarithm, yourself."
        )
    return replace(
        compressed(paper, epochs),
        init=0.1,
        lr=3e-3,
        decay=0.5,
        precision="bf16",
        tau=1.0,
        beta_share=round(1 / math.log(_ENTITIES[paper.graph]), 4),
        estimator="straight_through_gumbel_softmax",
    )


def soft(settings: PathSettings) -> PathSettings:
    """The same, but a hop goes on from a mixture of entities in training, as the paper's does."""
    return replace(settings, estimator=PAPER.estimator)


PAPER = PathSettings(
    epochs=200, evaluate_every=10, gamma=0.008, alpha_step=0.005,
    subject_dropout=0.7, object_dropout=0.1, relation_dropout=0.5,
)  # fmt: skip
PAPER_FB13 = replace(
    PAPER, graph="fb13", subject_dropout=0.1, object_dropout=0.6, relation_dropout=0.2
)  # fmt: skip
PAPER_FB15K_237 = replace(
    PAPER_FB13, graph="fb15k-237", epochs=100, protocol="all", monitor="MRR", inverse="paths"
)  # the paper does not say which dropout it used here
BEST = replace(quick(PAPER, 24), triples=4)
FB13 = replace(  # most test paths are known step by step, and to be memorised
    quick(PAPER_FB13, 10),
    triples=10, subject_dropout=0.1, object_dropout=0.1, relation_dropout=0.1,
)  # fmt: skip
FB15K_237 = replace(quick(PAPER_FB15K_237, 40), object_dropout=0.3, relation_dropout=0.1)
SMALL = PathSettings(
    graph="umls", length=3, protocol="all", monitor="MRR", validate_on="trained",
    epochs=40, batch=128, schedule_steps=3, evaluations=1, evaluate_every=4, lr=3e-3, decay=0.5,
    tau=4.0, gamma=0.04, alpha_step=0.025, gate="vector", dim=32, relation_dropout=0.1,
    object_dropout=0.1, subject_dropout=0.1,
)  # fmt: skip
COMPARED = replace(  # estimators, in seconds
    SMALL, epochs=4, batch=64, schedule_steps=25, evaluate_every=1, lr=1e-2, gamma=0.02,
    alpha_step=0.03, dim=16, beam=1,
)  # fmt: skip

AUTO = PathSettings(
    graph="umls", length=3, protocol="all", monitor="MRR", validate_on="trained", inverse="paths",
    triples=3, estimator="straight_through_gumbel_softmax", gate="vector", init=0.1, lr=5e-3,
    decay=0.5, tau=1.0, subject_dropout=0.5, relation_dropout=0.5,
)  # fmt: skip

PRESETS: Mapping[str, PathSettings] = {
    "small": SMALL,
    "auto": AUTO,
    "best": BEST,
    "fb13": FB13,
    "fb15k-237": FB15K_237,
    "paper": PAPER,
}
"""What `dcgraph train paths` does is the first, for others need a GPU, or a graph of one's own."""

FITTED = (
    "epochs", "batch", "dim", "schedule_steps", "evaluations", "evaluate_every",
    "subject_dropout", "relation_dropout", "beta_share", "gamma", "alpha_step",
)  # fmt: skip
"""What preset auto leaves open: :func:`fitted` chooses them for a graph."""


@dataclass(frozen=True)
class Size:
    """Of a graph: its entities, and the training examples of each length."""

    entities: int
    examples: tuple[int, ...]


def fitted(settings: PathSettings, size: Size, chosen: Collection[str] = ()) -> PathSettings:
    """Preset auto for a graph of this size; what is ``chosen`` stays, and the rest fits to it.

    A small graph needs many epochs for enough steps, and a large one few; a small one is learned by
    heart at once, and needs dropout, while a large one needs more dimensions. Schedules and
    evaluations have their shares of the run, however long it is. Noise has its largest value at
    tau.

    >>> some = fitted(AUTO, Size(100, (720, 240, 240)))
    >>> some.batch, some.dim, some.epochs
    (64, 32, 126)
    """

    def free(**values: Any) -> PathSettings:
        return replace(settings, **{k: v for k, v in values.items() if k not in chosen})

    fewest = min(size.examples)  # every length gives at least one batch
    large = fewest >= _LARGE
    settings = free(
        batch=min(fewest, _batch_for(fewest)),
        dim=64 if large else 32,
        subject_dropout=0.3 if large else 0.5,
        relation_dropout=0.3 if large else 0.5,
    )
    per_epoch = max(1, sum(examples // settings.batch for examples in size.examples))
    steps = min(_MOST_STEPS, _STEPS + _EPOCHS * per_epoch)
    settings = free(epochs=max(1, round(steps / per_epoch)))
    epochs = max(1, settings.epochs)
    settings = free(schedule_steps=min(per_epoch, max(1, round(_SCHEDULE_STEPS / epochs))))
    schedule_steps = epochs * settings.schedule_steps
    if settings.evaluate_every == 1:
        settings = free(evaluations=-(-_EVALUATIONS // epochs))
    return free(
        evaluate_every=max(1, epochs // _EVALUATIONS) if settings.evaluations == 1 else 1,
        beta_share=round(1 / math.log(max(size.entities, 3)), 4),
        gamma=float(f"{_GAMMA / schedule_steps:.4g}"),
        alpha_step=float(f"{_ALPHA / schedule_steps:.4g}"),
    )


_STEPS, _EPOCHS = 2_000, 8  # a run has so many steps and so many epochs more ...
_MOST_STEPS = 30_000  # ... until it takes too long
_LARGE = 2_000  # examples of a length, of which more dimensions and less dropout learn more
_SCHEDULE_STEPS = 150  # of a run, about
_EVALUATIONS = 10
_GAMMA, _ALPHA = 4.8, 3.0  # times one over the schedule steps: as in preset small


def _batch_for(examples: int) -> int:
    """A power of two: a third of the examples at most, up to 128, and of many examples up to 512.

    >>> [_batch_for(examples) for examples in (10, 240, 2_400, 8_000, 100_000)]
    [8, 64, 128, 128, 512]
    """
    small, large = min(128.0, max(8.0, examples / 3)), min(512.0, examples / 60)
    return int(2 ** math.floor(math.log2(max(small, large))))
