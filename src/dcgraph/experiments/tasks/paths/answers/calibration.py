r"""Calibrated probabilities: how likely is it that an answer that no known triple gives is right?

A beam search gives every candidate o a share :math:`p_o` of one. It is not the probability that o
is right: a query may have many right answers or none that is not known, and a model may be too sure
or not sure enough. What the graph knows needs no probability. Of the other candidates, let U be the
sum of their shares, and :math:`q_o = p_o / U`. An answer has a good chance to be right if it is
ahead of the other unknown ones (q), and if the model gives much of its weight to what is unknown
(U). So the probability is

.. math:: P(o \text{ is right}) = \sigma(a \log q_o + b \log U + c),

with the logistic function :math:`\sigma`. The numbers a (an inverse temperature of the scores), b
and c are fitted by maximum likelihood (temperature scaling and Platt's method) on validation
queries: *known* means by training triples, and *right* by triples of validation too. There is one
set of them for each length of paths with enough right answers; other lengths take that of the next
shorter one. So the probability is that of a graph which lacks as many triples as validation has.

Queries of one relation are drawn from all pairs of an entity and a relation that leads on from it,
whether an answer is missing there or not; longer ones are random walks. Both are in the graph of
training and validation, and no triple of the test has a part in it.

The **expected calibration error** is the mean distance between the probability that is said and the
share that is right, over ten bins of probabilities, each weighted by its number of answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

NUMBERS = ("share", "unknown", "constant")
"""What is fitted: a, b and c."""

BINS = 10

_NAME = "answers of length"
_ENOUGH = 20  # right answers, and wrong ones, to fit a length
_RIDGE = 1.0  # as much as a few answers say: pulls the numbers to those of the shares themselves
_STEPS = 50
_LOWEST = -30.0  # logarithms below are as good as that


@dataclass(frozen=True)
class Calibration:
    """The numbers by the length of paths; there are none where nothing could be fitted."""

    of: Mapping[int, tuple[float, float, float]]

    def numbers(self, length: int) -> tuple[float, float, float]:
        """Those of the length, else of the next shorter one, else of the shortest.

        >>> Calibration({2: (1, 1, 0), 3: (2, 1, 0)}).numbers(10)
        (2, 1, 0)
        """
        shorter = [known for known in self.of if known <= length]
        return self.of[max(shorter) if shorter else min(self.of)]

    def probabilities(
        self,
        length: int,
        shares: Float[Tensor, "queries entities"],
        unknown: Bool[Tensor, "queries entities"],
    ) -> Float[Tensor, "queries entities"]:
        """That each entity is right, as if it were unknown; ``shares`` are logarithms."""
        numbers = torch.tensor(self.numbers(length), dtype=torch.float64)
        return (features(shares, unknown) @ numbers).sigmoid()

    def as_numbers(self) -> dict[str, float]:
        """With a name for each, for the file of a model."""
        return {
            f"{_NAME} {length}, {name}": value
            for length, values in self.of.items()
            for name, value in zip(NUMBERS, values, strict=True)
        }


def calibration_from(numbers: Mapping[str, float]) -> Calibration:
    """Of the numbers in the file of a model; a ValueError if they make no sense."""
    found: dict[int, dict[str, float]] = {}
    for key, value in numbers.items():
        if key.startswith(_NAME):
            length, _, name = key.removeprefix(_NAME).strip().partition(", ")
            if name not in NUMBERS or not length.isdecimal() or not math.isfinite(value):
                raise ValueError(f"{key!r} is {value}")
            found.setdefault(int(length), {})[name] = value
    for hops, values in found.items():
        if len(values) < len(NUMBERS):
            raise ValueError(f"numbers for answers of length {hops} are missing")
    return Calibration({k: (v["share"], v["unknown"], v["constant"]) for k, v in found.items()})


def features(
    shares: Float[Tensor, "queries entities"], unknown: Bool[Tensor, "queries entities"]
) -> Float[Tensor, "queries entities 3"]:
    """log q, log U and 1 of every entity, in float64; ``shares`` are logarithms."""
    logs = shares.double()
    of_unknown = logs.masked_fill(~unknown, -math.inf).logsumexp(1, keepdim=True)
    within = (logs - of_unknown).nan_to_num(nan=0.0).clamp(_LOWEST, 0.0)
    whole = of_unknown.clamp(_LOWEST, 0.0).expand_as(logs)
    return torch.stack([within, whole, torch.ones_like(logs)], -1)


def fit(
    x: Float[Tensor, "answers 3"], right: Bool[Tensor, " answers"]
) -> tuple[float, float, float]:
    """Maximum likelihood, by Newton's method, with a small ridge towards (1, 1, 0)."""
    start = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)
    numbers, target = start.clone(), right.double()

    def loss(at: Tensor) -> float:
        logits = x @ at
        likelihood = torch.nn.functional.binary_cross_entropy_with_logits(
            logits, target, reduction="sum"
        )
        return float(likelihood + 0.5 * _RIDGE * (at - start).square().sum())

    for _ in range(_STEPS):
        probability = (x @ numbers).sigmoid()
        gradient = x.T @ (probability - target) + _RIDGE * (numbers - start)
        curvature = (x * (probability * (1 - probability)).unsqueeze(1)).T @ x
        curvature += _RIDGE * torch.eye(3, dtype=torch.float64)
        step = torch.linalg.solve(curvature, gradient)
        scale, now = 1.0, loss(numbers)
        while loss(numbers - scale * step) > now and scale > 1e-6:
            scale /= 2
        numbers = numbers - scale * step
        if float(step.abs().max()) < 1e-10:
            break
    share, unknown, constant = numbers.tolist()
    return share, unknown, constant


def fit_lengths(
    answers: Mapping[int, tuple[Float[Tensor, "answers 3"], Bool[Tensor, " answers"]]],
) -> Calibration:
    """Of the lengths with enough right and wrong answers."""
    return Calibration(
        {
            length: fit(x, right)
            for length, (x, right) in answers.items()
            if min(int(right.sum()), int((~right).sum())) >= _ENOUGH
        }
    )


def expected_calibration_error(
    probability: Float[Tensor, " answers"], right: Bool[Tensor, " answers"]
) -> float:
    """Over ten bins of equal width.

    >>> said = torch.tensor([0.9, 0.9, 0.1, 0.1])
    >>> round(expected_calibration_error(said, torch.tensor([True, False, False, False])), 4)
    0.25
    """
    bins = (probability * BINS).long().clamp(0, BINS - 1)
    sums = torch.zeros(BINS, dtype=torch.float64)
    sums.index_add_(0, bins, probability.double() - right.double())
    return float(sums.abs().sum()) / max(1, len(probability))
