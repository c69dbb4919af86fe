"""The sets of ListOps: sizes, statistics as published, tensors and files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dcgraph.experiments.tasks.listops.data import expressions, sets
from dcgraph.experiments.tasks.listops.data.expressions import Expression, parse, text_of
from dcgraph.experiments.tasks.listops.data.generator import Distribution
from dcgraph.experiments.tasks.listops.data.sets import tensors_of
from listops_oracles import (
    TREES,
    Nested,
    compare,
    depth_of,
    distance,
    drawn,
    everything,
    fingerprint,
    flat,
    homogeneity_p,
    value_of,
    written,
)


@pytest.fixture(scope="module")
def tables() -> dict[str, dict[str, Tensor]]:
    """Of each set at most the first 4,000, to save time."""
    return {name: tensors_of(some[:4_000]) for name, some in everything().items()}


def test_there_are_128_000_expressions_and_all_differ(tables: dict[str, dict[str, Tensor]]) -> None:
    sizes = {name: len(some) for name, some in everything().items()}
    assert sizes == {
        **{
            f"{split}-d{depth}": 20_000 if split == "train" else 2_000
            for depth in range(1, 6)
            for split in ("train", "validation", "test")
        },
        **dict.fromkeys(("d8", "d10", "d8-long", "d10-long"), 2_000),
    }
    assert len({each for some in everything().values() for each in some}) == 128_000
    for name, some in everything().items():
        depth = int(re.sub("[^0-9]", "", name))
        assert tables[name]["depth"].unique().tolist() == [depth]
        assert max(map(len, some)) <= (100 if "long" in name else 50)
        assert min(map(len, some)) >= (10 if depth > 1 else 4)


def test_a_seed_gives_the_same_expressions_everywhere() -> None:
    assert fingerprint(everything()) == "a2bfe55abe0989ab"
    assert text_of(everything()["test-d2"][0]) == "[MIN [MED 3 8 8 8 ] [MAX 7 9 ] ]"


def test_seeds_and_sets_have_numbers_of_their_own() -> None:
    streams = {
        (seed, number): sets._source(seed, number).random()
        for seed in range(20)
        for number in range(30)
    }
    assert len(set(streams.values())) == len(streams)
    with pytest.raises(ValueError, match="seed=-1, but a seed is at least 0"):
        sets.generate(-1)


def test_the_splits_of_a_depth_have_one_distribution() -> None:
    for depth in range(1, 6):
        lengths = [[*map(len, everything()[f"{split}-d{depth}"])] for split in sets.SPLITS]
        assert homogeneity_p(lengths[0], lengths[1] + lengths[2]) > 1e-4
    as_drawn = [*map(len, dict.fromkeys(drawn(sets.distribution_of(1), 60_000)))]
    assert homogeneity_p(as_drawn[:20_000], as_drawn[20_000:]) < 1e-4  # the test can fail


class Marginals:
    """Numbers of the expressions of one depth, as ratios of sums over examples."""

    def __init__(self, parts: Sequence[dict[str, Tensor]]) -> None:
        width = max(part["tokens"].shape[1] for part in parts)

        def joined(name: str, padding: int) -> Tensor:
            padded = [
                torch.nn.functional.pad(part[name], (0, width - part[name].shape[1]), value=padding)
                for part in parts
            ]
            return torch.cat(padded).long()

        self.length = torch.cat([part["length"] for part in parts])
        self.label = torch.cat([part["label"] for part in parts])
        self.used = torch.arange(width) < self.length.unsqueeze(1)
        self.tokens = joined("tokens", 0)
        parents = joined("parents", -1)
        self.operators = (self.tokens > 0) & (self.tokens < 4)
        self.closing = self.used & (self.tokens == 0)
        ends = self.closing.long()
        self.level = (self.operators.long() - ends).cumsum(1) + ends  # of operators and brackets
        self.level += self.used & (self.tokens >= 4)  # a digit is one further down
        inside = (self.used & ~self.closing & (parents >= 0)).long()
        self.arguments = torch.zeros_like(parents).scatter_add_(1, parents.clamp(min=0), inside)

    def having(self, what: Tensor, of: Tensor) -> tuple[Tensor, Tensor]:
        return (what & of).sum(1), of.sum(1)

    def per_example(self, number: Tensor) -> tuple[Tensor, Tensor]:
        return number, torch.ones_like(number)


@pytest.fixture(scope="module")
def marginals(tables: dict[str, dict[str, Tensor]]) -> dict[int, Marginals]:
    return {
        depth: Marginals([tables[f"{split}-d{depth}"] for split in sets.SPLITS])
        for depth in range(1, 6)
    }


def test_lengths_are_as_published(marginals: dict[int, Marginals]) -> None:
    means = {1: (6.3, 0.1), 2: (11.83, 0.01), 3: (16.99, 0.01), 4: (24.83, 0.01), 5: (34.84, 0.01)}
    compare(
        {f"depth {d}": (marginals[d].per_example(marginals[d].length), *means[d]) for d in means},
        examples=4_000,
    )
    d2 = marginals[2]
    compare({"10 tokens": (d2.per_example(d2.length == 10), 0.347, 0.001)}, examples=4_000)
    everywhere = torch.cat([m.length for m in marginals.values()])
    ones = torch.ones_like(everywhere)
    compare(
        {
            "mean": ((everywhere, ones), 18.95, 0.01),
            "mean square": ((everywhere**2, ones), 486.5, 0.1),
        },
        examples=20_000,
    )
    assert sorted(set(everywhere.tolist())) == [4, 5, 6, 7, *range(10, 51)]
    wrong = tensors_of(drawn(Distribution(3, 3, 10, 50), 2_000))[
        "length"
    ]  # levels as deep as needed
    assert distance((wrong, torch.ones_like(wrong)), 16.99, 4_000, 0.01) > 4  # the test can fail


def test_arguments_are_as_published(marginals: dict[int, Marginals]) -> None:
    shares = {
        1: (0.013, 0.120, 0.465, 0.403),
        2: (0.170, 0.227, 0.278, 0.324),
        3: (0.271, 0.258, 0.246, 0.226),
        4: (0.261, 0.255, 0.246, 0.238),
        5: (0.232, 0.252, 0.264, 0.252),
    }
    rows = {}
    for depth, published in shares.items():
        m = marginals[depth]
        for count, share in enumerate(published, 2):
            of = m.having(m.arguments == count, m.operators)
            rows[f"depth {depth}, {count} arguments"] = (of, share, 0.001)
    root, deepest = marginals[2], marginals[5]
    first = root.operators & (root.level == 1)
    last = deepest.operators & (deepest.level == 5)
    for count, share in enumerate((0.070, 0.185, 0.304, 0.441), 2):
        rows[f"root, {count}"] = (root.having(root.arguments == count, first), share, 0.001)
    for count, share in enumerate((0.263, 0.254, 0.255, 0.228), 2):
        rows[f"deepest, {count}"] = (deepest.having(deepest.arguments == count, last), share, 0.001)
    compare(rows, examples=4_000)


def test_operators_stand_where_published(marginals: dict[int, Marginals]) -> None:
    shares = {
        2: (0.310, 0),
        3: (0.370, 0.262, 0),
        4: (0.393, 0.300, 0.238, 0),
        5: (0.390, 0.316, 0.297, 0.280, 0),
    }
    rows = {}
    for depth, published in shares.items():
        m = marginals[depth]
        nodes = m.used & ~m.closing
        for level, share in enumerate(published, 2):
            of = m.having(m.operators, nodes & (m.level == level))
            if share:
                rows[f"depth {depth}, level {level}"] = (of, share, 0.001)
            else:
                assert of[0].sum() == 0
    compare(rows, examples=4_000)


def test_tokens_are_as_published(marginals: dict[int, Marginals]) -> None:
    counts = torch.cat(
        [
            torch.stack([((m.tokens == t) & m.used).sum(1) for t in range(14)], 1)
            for m in marginals.values()
        ]
    )
    operators, ones = counts[:, 1:4].sum(1), torch.ones(len(counts))
    rows = {
        "brackets": ((counts[:, 0], counts.sum(1)), 0.208, 0.001),
        "operators": ((operators, ones), 3.94, 0.01),
    }
    rows |= {f"[{t}": ((counts[:, t], operators), 1 / 3, 0.002) for t in (1, 2, 3)}
    rows |= {f"{t - 4}": ((counts[:, t], counts[:, 4:].sum(1)), 0.1, 0.004) for t in range(4, 14)}
    compare(rows, examples=20_000)


def test_labels_are_as_published(marginals: dict[int, Marginals]) -> None:
    labels = torch.cat([m.label for m in marginals.values()])
    percent = (11.6, 10.0, 9.6, 9.7, 9.9, 9.5, 9.0, 8.7, 9.7, 12.3)
    ones = torch.ones_like(labels)
    rows = {
        f"{digit}": ((labels == digit, ones), share / 100, 0.001)
        for digit, share in enumerate(percent)
    }
    compare(rows, examples=10_000)


def test_deeper_lengths_are_as_simulated(tables: dict[str, dict[str, Tensor]]) -> None:
    medians = {name: int(tables[name]["length"].median()) for name in sets.DEEPER}
    assert medians["d8"] == 45
    assert medians["d10"] == 48
    assert abs(medians["d8-long"] - 69) <= 1
    assert abs(medians["d10-long"] - 80) <= 1


@settings(max_examples=30)
@given(st.lists(TREES, min_size=1, max_size=5))
def test_tensors_hold_the_trees(trees: list[Nested]) -> None:
    some = [parse(written(tree)) for tree in trees]
    table = tensors_of(some)
    width = max(map(len, some))
    for name in ("tokens", "parents", "values"):
        assert table[name].shape == (len(some), width)
    for row, (tree, expression) in enumerate(zip(trees, some, strict=True)):
        size = len(expression)
        parents, values = zip(*flat(tree), strict=True)
        padding = [-1] * (width - size)
        assert table["tokens"][row].tolist() == [*expression, *([0] * (width - size))]
        assert table["parents"][row].tolist() == [*parents, *padding]
        assert table["values"][row].tolist() == [*values, *padding]
        assert table["label"][row] == value_of(tree)
        assert table["depth"][row] == depth_of(tree)
        assert table["length"][row] == size


def test_types_of_the_tensors() -> None:
    types = {name: tensor.dtype for name, tensor in tensors_of([parse("[MAX 1 2 ]")]).items()}
    assert types == {
        "tokens": torch.int8,
        "parents": torch.int32,
        "values": torch.int8,
        "label": torch.int64,
        "length": torch.int64,
        "depth": torch.int64,
    }
    with pytest.raises(ValueError, match="there are no expressions; pass at least one"):
        tensors_of([])


def test_every_set_gets_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "SPLITS", {"train": 6, "validation": 2, "test": 3})
    monkeypatch.setattr(sets, "_DEEPER_SIZE", 4)
    monkeypatch.setattr(sets, "generate_critical", partial(sets.generate_critical, size=2))
    paths = sets.write_all(tmp_path / "data", seed=3)
    assert sorted(paths) == sorted((tmp_path / "data").iterdir())
    sizes = {path.name: len(expressions.read(path)) for path in paths}
    assert sizes == {
        **{f"train-d{depth}.txt": 6 for depth in range(1, 6)},
        **{f"validation-d{depth}.txt": 2 for depth in range(1, 6)},
        **{f"test-d{depth}.txt": 3 for depth in range(1, 6)},
        **dict.fromkeys(("d8.txt", "d10.txt", "d8-long.txt", "d10-long.txt"), 4),
        **{f"critical-d{depth}.txt": 2 for depth in range(1, 9)},
    }


def test_the_data_are_the_sets_and_no_split_has_rows_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sets, "SPLITS", {"train": 6, "validation": 2, "test": 3})
    monkeypatch.setattr(sets, "_DEEPER_SIZE", 4)
    monkeypatch.setattr(sets, "generate_critical", partial(sets.generate_critical, size=2))
    data, drawn = sets.as_data.__wrapped__(3), sets.generate(3)
    found: dict[str, list[Expression]] = {}
    for split in data.splits:
        for table in data.tables(split):
            rows = zip(table["tokens"].tolist(), table["length"].tolist(), strict=True)
            found.setdefault(split, []).extend(bytes(tokens[:size]) for tokens, size in rows)
    for split in ("train", "validation", "test"):
        due = [each for depth in range(1, 6) for each in drawn[f"{split}-d{depth}"]]
        assert sorted(found[split]) == sorted(due)
    for name in sets.DEEPER:
        assert sorted(found[name]) == sorted(drawn[name])
    assert set(found) == {"train", "validation", *sets.TESTS}
    together = [each for some in found.values() for each in some]
    assert len(set(together)) == len(together)


def test_short_expressions_are_few_and_all_differ() -> None:
    drawn = sets.generate_short(0)
    sizes = {"train": 4_000, "validation": 300, "test": 500}
    assert {name: len(some) for name, some in drawn.items()} == {
        f"{split}-d{depth}": size for depth in (1, 2, 3) for split, size in sizes.items()
    }
    assert len({each for some in drawn.values() for each in some}) == 3 * 4_800
    for name, some in drawn.items():
        assert tensors_of(some)["depth"].unique().tolist() == [int(name[-1])]
        assert max(map(len, some)) <= 19
    data = sets.short_data(0)
    assert set(data.splits) == set(sizes), "there are no deeper tests"
    assert {split: data.size(split) for split in sizes} == {s: 3 * n for s, n in sizes.items()}
