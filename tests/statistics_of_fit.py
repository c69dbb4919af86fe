"""Goodness of fit for the tests, with torch alone."""

from __future__ import annotations

import torch
from torch import Tensor


def chi_square_p(counts: Tensor, probabilities: Tensor) -> float:
    """p-value of Pearson's chi-square test that ``counts`` were drawn from ``probabilities``."""
    expected = probabilities.double() * counts.sum()
    statistic = ((counts - expected) ** 2 / expected).sum()
    freedom = torch.tensor(len(counts) - 1, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom / 2, statistic / 2))


def kolmogorov_p(uniforms: Tensor) -> float:
    """p-value (asymptotic) of the Kolmogorov-Smirnov test that ``uniforms`` are U(0, 1)."""
    n = len(uniforms)
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    ordered = uniforms.double().sort().values
    distance = torch.maximum((steps[1:] - ordered).max(), (ordered - steps[:-1]).max())
    terms = torch.arange(1, 101, dtype=torch.float64)
    series = (-1) ** (terms - 1) * torch.exp(-2 * terms**2 * n * distance**2)
    return float((2 * series.sum()).clamp(0, 1))
