"""Settings of the addition task, and its presets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from ...._arguments import Mode, Similarity
from ...engine.settings import MOST_RUNS, NEED_THE_LOSS, Settings, per_replica, setting

LENGTHS = (1, 2, 4, 15, 100, 1000)
"""Digits of the numbers that a model with a learned carry adds at test."""


@dataclass(frozen=True, kw_only=True)
class AdditionSettings(Settings):
    """Settings of the addition task."""

    renamed: ClassVar[Mapping[str, str]] = {"digits": "values"}

    tau: float = per_replica(8.0, "temperature of the nodes")
    summands: int = setting(2, "images to add, 2 to 16")
    lengths: Literal["one", "all"] = setting(
        "one", "sums to train on: of all summands; or of 2, of 3, ... of all, each as often"
    )
    digits: int = setting(
        0, "digits of each of two numbers, added column by column with a learned carry; 0: none"
    )
    carries: int = setting(4, "rows of the codebook of the carry")
    modulo: int = setting(0, "what the sum is divided by, to answer with the rest; 0: nothing")
    model: Literal["discrete", "cnn", "deepproblog"] = setting(
        "discrete", "the paper's; or a CNN on both images; or the digit network with the rule given"
    )
    images: Literal["mnist", "digits"] = setting("mnist", "MNIST, or the embedded 8x8 digits")
    values: int = setting(10, "digits in use: 0 to this number less 1 (embedded images only)")
    examples: int = setting(160_000, "sums to train on (embedded images only)")
    symbols: int = setting(
        0, "rows of each of two codebooks, of images and of sums; 0: one, a row for each number"
    )
    sums: Literal["own", "answers"] = setting(
        "own", "with symbols: rows of the sums on the way, of their own or those of the answers"
    )
    adder: Literal["each", "shared"] = setting(
        "each", "a layer of its own for each addition, or one for all"
    )
    similarity: Similarity = setting("product", "what compares vectors with rows")  # noqa: RUF009
    residual: Mode = setting("drop", "what DropRes does with a vector and its row")  # noqa: RUF009
    init_std: float = setting(1.0, "the rows start as N(0, init_std^2)")
    protocol: Literal["clean", "paper"] = setting(
        "clean", "choose weights on held-out pairs; or on the test set, as the paper"
    )
    gate: Literal["batch", "example"] = setting("batch", "what shares a draw of the DropRes gate")
    augment: float = setting(0.0, "strength of random turns, shifts and stretches of the images")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.summands <= 16:
            raise ValueError(f"summands={self.summands}, but 2 to 16 images can be added.")
        if self.lengths == "all" and self.model == "cnn":
            raise ValueError(
                "lengths='all', but model='cnn' sees a fixed number of images at once."
            )
        if self.modulo < 0 or self.modulo == 1:
            raise ValueError(
                f"modulo={self.modulo}, but a rest needs at least 2; use 0 for the whole sum."
            )
        if self.digits < 0 or self.carries < 2:
            raise ValueError(
                f"digits={self.digits} and carries={self.carries}, but a number has at least 1 "
                "digit, and a carry at least 2 rows."
            )
        if self.digits and (self.model, self.images) != ("discrete", "mnist"):
            raise ValueError(
                f"digits={self.digits} needs model='discrete' and images='mnist'; leave out one of "
                "them."
            )
        if self.digits and self.symbols < 10:
            raise ValueError(
                f"digits={self.digits}, but {self.symbols} symbols are too few for ten digits; "
                "use --symbols 10 or more."
            )
        if self.digits and (self.summands > 2 or self.lengths == "all" or self.modulo):
            raise ValueError(
                f"digits={self.digits} has two numbers; leave out summands, lengths and modulo."
            )
        if self.sums == "answers" and not self.symbols:
            raise ValueError(
                "sums='answers', but with symbols=0 there is one codebook for all; add --symbols."
            )
        if not self.init_std > 0:
            raise ValueError(f"init_std={self.init_std}, but rows that are alike never part.")
        if not 2 <= self.values <= 10:
            raise ValueError(f"values={self.values}, but between 2 and 10 digits can be in use.")
        if self.images == "mnist" and self.values < 10:
            raise ValueError(f"values={self.values}, but on MNIST all 10 digits are in use.")
        if self.images == "digits" and self.model == "cnn":
            raise ValueError("model='cnn' needs images of 28x28; use --images mnist.")
        if not 1 <= self.examples <= 160_000:
            raise ValueError(
                f"examples={self.examples}, but there are sums for 1 to 160000 examples."
            )
        if self.symbols < 0 or self.symbols == 1:
            raise ValueError(
                f"symbols={self.symbols}, but a codebook has at least 2 rows; use 0 for one that "
                "has a row for each number."
            )
        choices, rows = 2 * self.summands - 2, self.symbols or self.numbers
        if self.estimator == "enumeration" and choices * math.log(rows) > math.log(MOST_RUNS):
            raise ValueError(
                f"estimator='enumeration' would run the network {rows:,}^{choices} times; use one "
                "that draws."
            )
        if self.gate == "batch" and self.estimator in NEED_THE_LOSS:
            raise ValueError(
                f"estimator={self.estimator!r} takes each example by itself, and so does its gate; "
                "add --gate example."
            )
        if self.augment < 0:
            raise ValueError(f"augment={self.augment}, but a strength is at least 0.")

    @property
    def numbers(self) -> int:
        """How many answers there are."""
        return self.modulo or self.summands * (self.values - 1) + 1


PAPER = AdditionSettings(protocol="paper")
CHAIN = AdditionSettings(
    summands=3, batch=32, lr=1e-3, decay=0.5, tau=2.0, gamma=0.02, alpha_step=0.005, gate="example"
)
BEST = AdditionSettings(
    epochs=60, batch=64, lr=1e-3, decay=0.3, average=0.999, augment=1.0,
    gamma=0.003, alpha_step=0.0015, gate="example",
)  # fmt: skip
SUMS = AdditionSettings(  # long chains: no values that merge, nothing continuous that stays
    summands=5, lengths="all", symbols=256, sums="answers", adder="shared", similarity="distance",
    init_std=0.3, residual="replace", gate="example", tau=1.0, tempmatch=False, beta=0.0,
    epochs=30, batch=32, lr=1e-3, decay=0.3, average=0.999, augment=1.0, evaluations=1,
    evaluate_every=3, alpha_step=1 / 60,
)  # fmt: skip
CARRY = AdditionSettings(  # more symbols than digits; residuals go slowly, then the rare symbols
    digits=4, symbols=32, prune=0.01, gate="example", tau=2.0, gamma=0.00625, alpha_step=1 / 128,
    epochs=40, batch=32, lr=1e-3, decay=0.5, average=0.999, augment=1.0, evaluations=1,
    evaluate_every=4,
)  # fmt: skip
DEMO = AdditionSettings(
    images="digits", values=5, summands=3, epochs=1, batch=32, schedule_steps=100, evaluations=10,
    lr=3e-3, decay=0.5, gamma=0.02, alpha_step=0.06, gate="example",
)  # fmt: skip
COMPARED = AdditionSettings(  # estimators, in seconds: two codebooks, so that values can part
    images="digits", summands=3, symbols=64, examples=64_000, epochs=1, batch=32,
    schedule_steps=100, evaluations=4, lr=3e-3, decay=0.5, tau=4.0, gamma=0.02, alpha_step=0.03,
    gate="example",
)  # fmt: skip
