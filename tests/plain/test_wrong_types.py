"""Errors about types, names and shapes that the run-time checks of the other tests would catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import dcgraph as dc

LOGITS = torch.zeros(3, 4)
relax: Any = dc.gumbel_softmax
categorical: Any = dc.Categorical
discrete: Any = dc.Discrete


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: relax(torch.zeros(3, 4, dtype=torch.int64)), "int64; pass a floating"),
        (lambda: relax([1.0, 2.0]), "list; pass a floating"),
        (lambda: relax(LOGITS, mask=torch.ones(3, 4)), "float32; pass a bool tensor"),
        (lambda: relax(LOGITS, mask=[True] * 4), "list; pass a bool tensor"),
        (lambda: relax(LOGITS, None), "tau is a NoneType; pass a number or a tensor"),
        (lambda: relax(LOGITS, beta="1"), "beta is a str; pass a number or a tensor"),
        (lambda: relax(LOGITS, noise=3), "noise is a int, but a name is needed"),
        (lambda: categorical(estimator=relax), "estimator is a function, but a name is needed"),
        (lambda: discrete(4, 3, codebook=torch.zeros(3, 4)), "at the call"),
    ],
)
def test_wrong_types(call: Callable[[], object], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: relax(LOGITS, beta=0.0, noise="gumbl"), "mean 'gumbel'"),
        (lambda: discrete(4, 3, decode="smaple"), "mean 'sample'"),
        (lambda: discrete(4, 3, residual="none", gate="exmaple"), "mean 'example'"),
        (lambda: discrete(4, 3, residual="allways"), "mean 'always'"),
        (lambda: discrete(4, 3, codebook="shared"), "There are: tied, separate, given"),
    ],
)
def test_misspelt_names(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("mode", ["drop", "always", "weighted"])
def test_residual_of_another_width(mode: Any) -> None:
    node = dc.Discrete(4, 3, codebook="separate", width=5, residual=mode)
    with pytest.raises(ValueError, match=r"\(2, 4\).*\(2, 5\).*residual="):
        node(torch.zeros(2, 4))
