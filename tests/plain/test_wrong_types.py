"""Errors about types, names and shapes that the run-time checks of the other tests would catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import dcgraph as dc
from dcgraph.codebook._functions import using
from dcgraph.frameworks.lightning import DialsCallback
from dcgraph.structures import TreeEdges

LOGITS = torch.zeros(3, 4)
relax: Any = dc.gumbel_softmax
categorical: Any = dc.Categorical
one_hot_categorical: Any = dc.OneHotCategorical
discrete: Any = dc.Discrete
mix: Any = dc.mix
by_distance: Any = dc.codebook.by_distance
dials: Any = dc.Dials
constant: Any = dc.constant
population: Any = dc.Population
lstm: Any = dc.population.LSTM
favour: Any = dc.init.favour_
drop: Any = dc.drop_residual
QUERY, CODEBOOK = torch.zeros(3, 4), torch.zeros(5, 4)
VALID = torch.ones(3, dtype=torch.bool)


def packed_sequence() -> object:
    return nn.utils.rnn.pack_padded_sequence(torch.zeros(6, 2, 4), torch.tensor([6, 3]))


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
        (lambda: mix(QUERY.int(), CODEBOOK), "query is of type torch.int32; pass a tensor of fl"),
        (lambda: mix(QUERY, [[1.0]]), "codebook is of type list; pass a tensor"),
        (lambda: mix(QUERY, CODEBOOK.to(torch.float8_e4m3fn)), "float8_e4m3fn; pass a tensor"),
        (lambda: mix(QUERY, CODEBOOK.double()), "float64; convert one of them"),
        (lambda: mix(QUERY, CODEBOOK, None), "tau is a NoneType; pass a number"),
        (
            lambda: dc.codebook.cross_entropy(QUERY, CODEBOOK, QUERY[:, 0]),
            "target is of type torch.float32",
        ),
        (lambda: dials(tau="8"), "tau='8' is a str; pass a number or a schedule"),
        (lambda: dials(alpha=True), "alpha=True is a bool; pass a number or a schedule"),
        (lambda: constant(None), "value=None is a NoneType; pass a number"),
        (lambda: dials().attach([categorical()]), "model is a list; pass a torch.nn.Module"),
        (lambda: population(categorical, 5), r"seeds is an int; .*such as range\(5\)"),
        (lambda: population(categorical, [0.5]), "'float' object cannot be interpreted"),
        (lambda: population(lambda: 3, [0]), "build made a int; it must make a torch.nn.Module"),
        (lambda: lstm(4, 3)(packed_sequence()), "is a PackedSequence, .* padded sequences"),
        (lambda: discrete(4, 3)(QUERY, rows=VALID, fill=0.0), 'fill=0.0 is a float; pass "input"'),
        (
            lambda: TreeEdges("arborescence")(torch.zeros(3, 3), rows=torch.ones(3)),
            r"used \(rows= of a node\) is of type torch.float32",
        ),
        (lambda: favour(LOGITS.int(), 0), "logits are a torch.int32; pass the parameter"),
        (lambda: favour(nn.Sequential(), 0), "logits are a Sequential; .* torch.nn.Linear"),
        (lambda: favour(LOGITS, True), "category=True is a bool; pass its number"),
        (lambda: favour(LOGITS, 1.0), "category=1.0 is a float"),
        (lambda: favour(LOGITS, 1, "0.9"), "probability='0.9' is a str; pass a number between"),
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


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: one_hot_categorical(LOGITS, rows=VALID[:1]),
            r"rows are .* shape \(3,\), one entry",
        ),
        (
            lambda: one_hot_categorical(LOGITS, rows=[True]),
            r"rows are \[True\]; pass a bool tensor",
        ),
        (lambda: mix(QUERY, torch.zeros(5, 3)), "width 4, .* 3; .* make the widths equal"),
        (lambda: by_distance(QUERY, torch.zeros(5, 3)), "width 4, .* 3; .* make the widths equal"),
        (lambda: mix(QUERY, torch.zeros(0, 4)), r"\(0, 4\) is empty; at least one row"),
        (lambda: mix(QUERY, torch.zeros(4)), "a matrix"),
        (lambda: mix(QUERY, torch.zeros(2, 5, 4)), r"\(2,\) in front.*first ones of the query"),
        (lambda: mix(QUERY, CODEBOOK.to("meta")), "on cpu, the codebook on meta; move one"),
        (lambda: mix(QUERY, CODEBOOK, 0.0), "tau=0, but a temperature is > 0"),
        (lambda: mix(QUERY, CODEBOOK, beta=-1.0), "beta=-1, but a noise scale is >= 0"),
        (lambda: mix(QUERY, CODEBOOK, torch.ones(3)), r"tau has shape \(3,\).* \(3, 1\)"),
        (lambda: mix(QUERY, CODEBOOK, noise=QUERY), r"noise has shape \(3, 4\).* \(3, 5\)"),
        (lambda: mix(QUERY, CODEBOOK, mask=torch.ones(4).bool()), "mask has shape"),
        (
            lambda: dc.codebook.cross_entropy(QUERY, CODEBOOK, torch.tensor([0, 1])),
            r"target has shape \(2,\), .* one for each query: \(3,\)",
        ),
        (
            lambda: dc.codebook.cross_entropy(QUERY, CODEBOOK, torch.tensor([0, 5, 1])),
            "target=5 is no row of a codebook of 5 rows",
        ),
    ],
)
def test_query_and_codebook_that_do_not_fit(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    ("rows", "fill", "words"),
    [
        (torch.ones(2, dtype=torch.bool), "input", r"bool of shape \(2,\); pass .* shape \(3,\)"),
        (torch.ones(1, dtype=torch.bool), "input", r"bool of shape \(1,\)"),
        (torch.ones(3), "input", "rows are torch.float32"),
        ([True] * 3, "input", r"rows are \[True, True, True\]; pass a bool tensor"),
        (VALID, "zeros", "fill='zeros' is unknown; did you mean 'zero'"),
        (VALID, torch.zeros(4), r"a fill of shape \(4,\), for the output has shape \(3, 4\)"),
    ],
)
def test_wrong_rows(rows: Any, fill: Any, words: str) -> None:
    node = dc.Discrete(4, 3)
    with pytest.raises(ValueError, match=words):
        node(QUERY, rows=rows, fill=fill)
    if rows is not VALID:
        for mode in ("drop", "weighted"):  # where a wrong shape could broadcast
            with pytest.raises(ValueError, match=words):
                drop(QUERY, QUERY, 0.5, mode=mode, rows=rows)


@pytest.mark.parametrize("mode", ["drop", "always", "weighted"])
def test_residual_of_another_width(mode: Any) -> None:
    node = dc.Discrete(4, 3, codebook="separate", width=5, residual=mode)
    with pytest.raises(ValueError, match=r"\(2, 4\).*\(2, 5\).*residual="):
        node(torch.zeros(2, 4))


def test_streaming_where_it_cannot() -> None:
    with using("streaming"), pytest.raises(ValueError, match="is for CUDA with Triton"):
        mix(QUERY, CODEBOOK)


def test_a_single_number_has_no_category_to_favour() -> None:
    with pytest.raises(ValueError, match="a single number"):
        favour(torch.tensor(1.0), 0)


def test_what_are_no_dials_is_said() -> None:
    with pytest.raises(TypeError, match=r"dials is a float; pass dcgraph.Dials, or a function"):
        DialsCallback(0.5)  # type: ignore[arg-type]


def test_a_wrong_entry_of_a_list_is_named_with_its_place() -> None:
    with pytest.raises(TypeError, match=r"^tau\[1\]='warm' is a str"):
        dc.Dials(tau=[1.0, "warm"])  # type: ignore[list-item]


@pytest.mark.parametrize("name", sorted(dc.estimators.ESTIMATORS))
def test_wrong_arguments_of_every_estimator(name: str) -> None:
    estimate: Any = dc.estimators.get_estimator(name)
    with pytest.raises(ValueError, match="noise='reverse' is unknown; did you mean 'reversed'"):
        estimate(LOGITS, tau=1.0, beta=1.0, noise="reverse")
    for wrong in ([1.0, 2.0], torch.tensor([1, 2])):
        with pytest.raises(TypeError, match=r"logits are of type .*; pass a floating point tensor"):
            estimate(wrong, tau=1.0, beta=1.0)
