"""ListOps data: the language, the law of the generator, the sets, and what depth-critical means."""

from __future__ import annotations

import hashlib
import itertools
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dcgraph.experiments.engine.datasets import DataError
from dcgraph.experiments.tasks.listops import depth_critical, expressions, generator, sets
from dcgraph.experiments.tasks.listops.expressions import Expression, parse, text_of, tree_of
from dcgraph.experiments.tasks.listops.generator import Law
from dcgraph.experiments.tasks.listops.tensors import rows_by_length, tensors_of
from statistics_of_fit import chi_square_p

# Oracles, written another way: nested lists for trees, recursion for values

Nested = int | tuple[str, list["Nested"]]
FUNCTIONS: dict[str, Callable[[list[int]], int]] = {
    "MIN": min,
    "MAX": max,
    "MED": lambda arguments: int(statistics.median(arguments)),
}


def value_of(tree: Nested) -> int:
    return tree if isinstance(tree, int) else FUNCTIONS[tree[0]]([value_of(a) for a in tree[1]])


def depth_of(tree: Nested) -> int:
    return 0 if isinstance(tree, int) else 1 + max(map(depth_of, tree[1]))


def written(tree: Nested) -> str:
    if isinstance(tree, int):
        return str(tree)
    return f"[{tree[0]} {' '.join(map(written, tree[1]))} ]"


def flat(tree: Nested, parent: int = -1, first: int = 0) -> list[tuple[int, int]]:
    """Parent and value of each token."""
    if isinstance(tree, int):
        return [(parent, tree)]
    found = [(parent, value_of(tree))]
    for argument in tree[1]:
        found += flat(argument, first, first + len(found))
    return [*found, (first, -1)]


def evaluated(text: str) -> int:
    """By Python itself."""
    called = re.sub(r"\[(M..)", r"\1([", text).replace("]", "])")
    called = re.sub(r"(?<=[0-9)]) (?=[0-9M])", ",", called)
    return int(eval(called, {}, FUNCTIONS))


def operators_over(trees: st.SearchStrategy[Nested]) -> st.SearchStrategy[Nested]:
    return st.tuples(st.sampled_from(list(FUNCTIONS)), st.lists(trees, min_size=1, max_size=6))


TREES = operators_over(st.recursive(st.integers(0, 9), operators_over, max_leaves=30))

# The language


@given(TREES)
def test_text_to_tree_and_back(tree: Nested) -> None:
    text = written(tree)
    expression = parse(text)
    assert text_of(expression) == text
    found = tree_of(expression)
    assert list(zip(found.parents, found.values, strict=True)) == flat(tree)
    assert found.depth == depth_of(tree)
    assert found.values[0] == value_of(tree) == evaluated(text)


@given(TREES)
def test_space_around_brackets_is_optional(tree: Nested) -> None:
    text = written(tree)
    tight = text.replace(" ]", "]").replace(" [", "[").replace("] ", "]")
    assert parse(tight) == parse(f"\t{text.replace(' ', '   ')} ") == parse(text)


def test_the_numbers_of_the_tokens() -> None:
    assert " ".join(expressions.TOKENS) == "] [MIN [MAX [MED 0 1 2 3 4 5 6 7 8 9"
    assert list(parse("[MED [MIN 0 9 ] [MAX 4 5 ] ]")) == [3, 1, 4, 13, 0, 2, 8, 9, 0, 0]


def test_nesting_has_no_limit() -> None:
    depth = 20_000  # far beyond Python's recursion
    tree = tree_of(parse("[MAX " * depth + "7" + " ]" * depth))
    assert (tree.depth, tree.values[0]) == (depth, 7)


MALFORMED = [
    ("", "the expression is empty; begin with [MIN, [MAX or [MED."),
    ("5", "the expression starts with '5'; begin with [MIN, [MAX or [MED."),
    ("] 5", "the expression starts with ']'; begin with [MIN, [MAX or [MED."),
    ("[SUM 1 2 ]", "'[SUM' is not a token; use [MIN, [MAX, [MED, ] and the digits 0 to 9."),
    ("[max 1 2 ]", "'[max' is not a token; use"),
    ("[ MAX 1 2 ]", "'[' is not a token; use"),
    ("[MAX 12 ]", "'12' is not a token; use"),
    ("[MAX ٣ ]", "'٣' is not a token; use"),
    (f"[MAX {'1' * 5000} ]", f"'{'1' * 20}...' is not a token; use"),
    ("[MAX 1 2", "1 bracket is not closed; add as many ]."),
    ("[MAX 1 [MIN 2 [MED 3 ]", "2 brackets are not closed; add as many ]."),
    ("[MAX 1 ] ]", "']' comes after the last bracket is closed, at token 4; write one"),
    ("[MAX 1 ] 2", "'2' comes after the last bracket is closed, at token 4; write one"),
    ("[MAX 1 ] [MIN 2 ]", "'[MIN' comes after the last bracket is closed, at token 4; write one"),
    ("[MAX 1 [MIN ] ]", "[MIN at token 3 has no argument; give it at least one."),
    ("[MAX ]", "[MAX at token 1 has no argument; give it at least one."),
]


@pytest.mark.parametrize(("text", "reason"), MALFORMED)
def test_a_malformed_expression_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse(text)
    (line,) = str(raised.value).splitlines()
    assert line.startswith(reason)
    assert line.endswith(".")


# Files


def put(folder: Path, content: str | bytes) -> Path:
    path = folder / "expressions.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    some = [parse("[MAX 2 9 [MIN 4 7 ] 0 ]"), parse("[MED 3 4 ]")]
    path = tmp_path / "new" / "list.txt"
    expressions.write(path, some)
    assert path.read_bytes() == b"[MAX 2 9 [MIN 4 7 ] 0 ]\t9\n[MED 3 4 ]\t3\n"
    assert expressions.read(path) == some
    assert [each.name for each in path.parent.iterdir()] == ["list.txt"]


def test_other_systems_lines_are_read(tmp_path: Path) -> None:
    path = put(tmp_path, "\ufeff[MAX 1 2 ]\t2\r\n\r\n  \n [MIN 1 2] \t 1 ")
    assert expressions.read(path) == [parse("[MAX 1 2 ]"), parse("[MIN 1 2 ]")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        *((f"\n[MAX 1 ]\t1\n{text}\t0", f", line 3: {said}") for text, said in MALFORMED),
        ("[MAX 1 ]", ", line 1: the value is missing; write it after the expression and a tab."),
        ("[MAX 1 ] 1", ", line 1: the value is missing; write it after the expression and a tab."),
        ("[MAX 1 ]\t", ", line 1: the value is missing; write it after the expression and a tab."),
        ("[MAX 1 ]\t10", ", line 1: the value is '10', but it must be a digit 0 to 9."),
        ("[MAX 1 ]\t-1", ", line 1: the value is '-1', but it must be a digit 0 to 9."),
        ("[MAX 1 ]\tone", ", line 1: the value is 'one', but it must be a digit 0 to 9."),
        ("[MAX 1 ]\t1\t1", r", line 1: the value is '1\t1', but it must be a digit 0 to 9."),
        ("[MAX 1 ]\t1\n[MAX 1 ]\t2", ", line 2: the value is 2, but the expression is 1; correct"),
        ("", " has no expressions; write one, a tab and its value per line."),
        ("\n \n", " has no expressions; write one, a tab and its value per line."),
        (b"[MAX 1 ]\t1\n\x89PNG\xff", ", line 2: not text; name a file of expressions."),
    ],
)
def test_a_wrong_file_is_an_error_with_file_and_line(
    tmp_path: Path, content: str | bytes, reason: str
) -> None:
    path = put(tmp_path, content)
    with pytest.raises(DataError) as raised:
        expressions.read(path)
    (line,) = str(raised.value).splitlines()
    assert line.startswith(f"{path}{reason}")
    assert line.endswith(".")


def test_files_that_cannot_be_had_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent: No such file or directory; name a file of"):
        expressions.read(tmp_path / "absent")
    with pytest.raises(DataError, match="Is a directory; name a file of"):
        expressions.read(tmp_path)
    with pytest.raises(DataError, match=r"cannot write .*; name a folder that can be written"):
        expressions.write(put(tmp_path, "a file") / "list.txt", [parse("[MAX 1 ]")])


# The law of the generator


def shape_of(expression: Expression) -> str:
    return re.sub("M..", "M", re.sub("[0-9]", "0", text_of(expression)))


def grown(source: Random, levels: int, level: int = 1) -> Nested:
    """The original generator, word for word: an operator, then arguments until all are digits."""
    arguments: list[Nested] = []
    for _ in range(source.choice([2, 3, 4, 5])):
        if level < levels and source.random() < 0.25:
            arguments.append(grown(source, levels, level + 1))
        else:
            arguments.append(source.randrange(10))
    return source.choice(list(FUNCTIONS)), arguments


def rejected(law: Law, count: int, source: Random) -> list[Expression]:
    kept: list[Expression] = []
    while len(kept) < count:
        tree = grown(source, law.levels)
        if depth_of(tree) == law.depth and len(flat(tree)) <= law.longest:
            kept += [parse(written(tree))] * (len(flat(tree)) >= law.shortest)
    return kept


def homogeneity_p(first: Sequence[object], second: Sequence[object], least: int = 10) -> float:
    """p-value of the chi-square test that two samples have one law; rare classes are merged."""
    counts = [Counter(first), Counter(second)]
    common = [x for x, n in (counts[0] + counts[1]).items() if n >= 2 * least]
    table = torch.tensor([[each[x] for x in common] for each in counts], dtype=torch.float64)
    totals = torch.tensor([len(first), len(second)], dtype=torch.float64)
    table = torch.cat([table, (totals - table.sum(1)).unsqueeze(1)], 1)
    table = table[:, table.sum(0) > 0]
    expected = totals.unsqueeze(1) * table.sum(0) / totals.sum()
    statistic = ((table - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor(table.shape[1] - 1.0) / 2, statistic / 2))


def shapes(levels: int, level: int, longest: int) -> Iterator[tuple[str, float, int]]:
    """All operators at a level with their arguments: text, probability and depth."""
    for count in (2, 3, 4, 5):
        for text, p, depth in rows_of_shapes(levels, level + 1, count, longest - 2):
            yield f"[M {text}]", p / 4, depth + 1


def rows_of_shapes(
    levels: int, level: int, count: int, longest: int
) -> Iterator[tuple[str, float, int]]:
    """All rows of arguments, with at least one token for each that is still to come."""
    if count == 0 or longest < count:
        yield from [("", 1.0, 0)] if count == 0 else []
        return
    firsts = [("0", 0.75 if level <= levels else 1.0, 0)]
    if level <= levels and longest - count + 1 >= 4:
        operators = shapes(levels, level, longest - count + 1)
        firsts += [(text, p / 4, depth) for text, p, depth in operators]
    for text, p, depth in firsts:
        left = longest - len(text.split())
        for rest, q, other in rows_of_shapes(levels, level, count - 1, left):
            yield f"{text} {rest}", p * q, max(depth, other)


def drawn(law: Law, count: int, seed: int = 0) -> list[Expression]:
    return [*itertools.islice(generator.draws(law, Random(seed)), count)]


@pytest.mark.parametrize(
    "law",
    [Law(2, 2, 4, 12), Law(2, 5, 10, 12), Law(3, 3, 4, 13), Law(3, 5, 10, 13), Law(4, 4, 4, 15)],
)
def test_the_law_of_shapes_by_enumeration(law: Law) -> None:
    """Every shape there is, with its probability."""
    likely = {
        text: p
        for text, p, depth in shapes(law.levels, 1, law.longest)
        if depth == law.depth and len(text.split()) >= law.shortest
    }
    assert max(len(text.split()) for text in likely) == law.longest
    some = drawn(law, 12_000)
    counts = Counter(map(shape_of, some))
    assert set(counts) <= set(likely)
    probabilities = torch.tensor([*likely.values()], dtype=torch.float64)
    found = torch.tensor([counts[text] for text in likely], dtype=torch.float64)
    probabilities /= probabilities.sum()
    assert probabilities.min() * len(some) > 5
    assert chi_square_p(found, probabilities) > 1e-4
    uniform = torch.ones(len(likely), dtype=torch.float64) / len(likely)
    assert chi_square_p(found, uniform) < 1e-4  # the test can fail


FEATURES: dict[str, Callable[[Expression], object]] = {
    "length": len,
    "operators": lambda e: sum(0 < token < 4 for token in e),
    "arguments of the root": lambda e: tree_of(e).parents.count(0),
    "operators at the deepest level": lambda e: operator_levels(e).count(tree_of(e).depth),
    "arguments of the last operator": lambda e: tree_of(e).parents.count(
        max(position for position, token in enumerate(e) if 0 < token < 4)
    ),
    "most brackets closed at once": lambda e: max(map(len, re.findall(b"\0+", e))),
    "value": lambda e: tree_of(e).values[0],
    "first tokens": lambda e: bytes(min(token, 4) for token in e[:3]),
}


def feature_ps(first: list[Expression], second: list[Expression]) -> dict[str, float]:
    return {
        name: homogeneity_p([*map(feature, first)], [*map(feature, second)])
        for name, feature in FEATURES.items()
    }


def operator_levels(expression: Expression) -> list[int]:
    """The level of each operator."""
    steps = itertools.accumulate((0 < token < 4) - (token == 0) for token in expression)
    return [level for level, token in zip(steps, expression, strict=True) if 0 < token < 4]


@pytest.mark.parametrize(
    ("law", "other_levels"), [(Law(3, 5, 10, 50), 3), (Law(5, 5, 10, 50), 6), (Law(7, 7, 4, 50), 9)]
)
def test_the_law_is_that_of_throwing_away(law: Law, other_levels: int) -> None:
    ours, theirs = drawn(law, 1_200), rejected(law, 1_200, Random(1))
    for name, p in feature_ps(ours, theirs).items():
        assert p > 1e-4, name
    other = drawn(replace(law, levels=other_levels), 1_200)
    assert min(feature_ps(other, theirs).values()) < 1e-4  # the test can fail


def test_operators_and_digits_are_uniform() -> None:
    tokens = Counter(token for e in drawn(Law(5, 5, 10, 50), 2_000) for token in e)
    for group in (range(1, 4), range(4, 14)):
        counts = torch.tensor([tokens[token] for token in group])
        assert chi_square_p(counts, torch.ones(len(group)) / len(group)) > 1e-4


def test_impossible_laws_are_errors() -> None:
    with pytest.raises(ValueError, match="depth=6, but it lies between 1 and levels=5"):
        Law(6, 5, 4, 50)
    with pytest.raises(ValueError, match="depth=0, but it lies between 1 and levels=5"):
        Law(0, 5, 4, 50)
    with pytest.raises(ValueError, match=r"longest=24\) allows no expression; allow other lengths"):
        drawn(Law(8, 8, 4, 24), 1)  # 8 operators, 8 brackets and 9 digits are 25


# The sets


@pytest.fixture(scope="module")
def everything() -> dict[str, list[Expression]]:
    return sets.generate(0)


@pytest.fixture(scope="module")
def tables(everything: dict[str, list[Expression]]) -> dict[str, dict[str, Tensor]]:
    """Of each set at most the first 4,000, to save time."""
    return {name: tensors_of(some[:4_000]) for name, some in everything.items()}


def fingerprint(some: dict[str, list[Expression]]) -> str:
    digest = hashlib.sha256()
    for name, expressions_ in some.items():
        digest.update(name.encode() + b"".join(expressions_))
    return digest.hexdigest()[:16]


def test_there_are_128_000_expressions_and_all_differ(
    everything: dict[str, list[Expression]], tables: dict[str, dict[str, Tensor]]
) -> None:
    sizes = {name: len(some) for name, some in everything.items()}
    assert sizes == {
        **{
            f"{split}-d{depth}": 20_000 if split == "train" else 2_000
            for depth in range(1, 6)
            for split in ("train", "validation", "test")
        },
        **dict.fromkeys(("d8", "d10", "d8-long", "d10-long"), 2_000),
    }
    assert len({each for some in everything.values() for each in some}) == 128_000
    for name, some in everything.items():
        depth = int(re.sub("[^0-9]", "", name))
        assert tables[name]["depth"].unique().tolist() == [depth]
        assert max(map(len, some)) <= (100 if "long" in name else 50)
        assert min(map(len, some)) >= (10 if depth > 1 else 4)


def test_a_seed_gives_the_same_expressions_everywhere(
    everything: dict[str, list[Expression]],
) -> None:
    assert fingerprint(everything) == "a2bfe55abe0989ab"
    assert text_of(everything["test-d2"][0]) == "[MIN [MED 3 8 8 8 ] [MAX 7 9 ] ]"


def test_seeds_and_sets_have_numbers_of_their_own() -> None:
    streams = {
        (seed, number): sets._source(seed, number).random()
        for seed in range(20)
        for number in range(30)
    }
    assert len(set(streams.values())) == len(streams)
    with pytest.raises(ValueError, match="seed=-1, but a seed is at least 0"):
        sets.generate(-1)


def test_the_splits_of_a_depth_have_one_law(everything: dict[str, list[Expression]]) -> None:
    for depth in range(1, 6):
        lengths = [[*map(len, everything[f"{split}-d{depth}"])] for split in sets.SPLITS]
        assert homogeneity_p(lengths[0], lengths[1] + lengths[2]) > 1e-4
    as_drawn = [*map(len, dict.fromkeys(drawn(sets.law_of(1), 60_000)))]
    assert homogeneity_p(as_drawn[:20_000], as_drawn[20_000:]) < 1e-4  # the test can fail


# Statistics of the 20,000 validation and test examples that belong to the paper's code


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


def distance(ratio: tuple[Tensor, Tensor], published: float, examples: int, unit: float) -> float:
    """How far a ratio of sums is from the published one, in standard errors of the difference.

    ``unit`` is the last digit given; the published number may be off by half of it.
    """
    above, below = (part.double() for part in ratio)
    ours = above.sum() / below.sum()
    variance = (above - ours * below).square().mean() / below.mean() ** 2
    error = (variance * (1 / examples + 1 / len(above))).sqrt()
    return float((abs(ours - published) - unit / 2).clamp(min=0) / error)


@pytest.fixture(scope="module")
def marginals(tables: dict[str, dict[str, Tensor]]) -> dict[int, Marginals]:
    return {
        depth: Marginals([tables[f"{split}-d{depth}"] for split in sets.SPLITS])
        for depth in range(1, 6)
    }


def compare(rows: dict[str, tuple[tuple[Tensor, Tensor], float, float]], examples: int) -> None:
    distances = {
        name: distance(ratio, published, examples, unit)
        for name, (ratio, published, unit) in rows.items()
    }
    assert max(distances.values()) < 4, distances


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
    wrong = tensors_of(drawn(Law(3, 3, 10, 50), 2_000))["length"]  # levels as deep as needed
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


# What depth-critical means


def spans(text: str) -> list[tuple[int, int, int]]:
    """Level, start and end in characters of each operator's expression."""
    found, opened = [], []
    for place, character in enumerate(text):
        if character == "[":
            opened.append(place)
        if character == "]":
            start = opened.pop()
            found.append((len(opened) + 1, start, place + 1))
    return found


def replaced(text: str, start: int, stop: int, digit: int) -> int:
    """The answer with a digit in place of an inner expression."""
    changed = f"{text[:start]}{digit}{text[stop:]}"
    return evaluated(changed) if start else digit


def top_levels(text: str, levels: int) -> int:
    """The answer of a parser that sees so many levels."""
    inner = sorted((start, stop) for level, start, stop in spans(text) if level == levels + 1)
    for start, stop in reversed(inner):
        digits = " ".join(re.findall("[0-9]", text[start:stop]))
        text = text[:start] + digits + text[stop:]
    return evaluated(text)


CRITICAL_SIZE = 12


@pytest.fixture(scope="module")
def critical(everything: dict[str, list[Expression]]) -> dict[str, list[Expression]]:
    known = {each for some in everything.values() for each in some}
    return sets.generate_critical(0, known, CRITICAL_SIZE)


def test_the_answer_depends_on_the_deepest_level(critical: dict[str, list[Expression]]) -> None:
    """By brute force: every operator, every digit, every number of levels."""
    assert list(critical) == [f"critical-d{depth}" for depth in range(1, 9)]
    for depth, some in enumerate(critical.values(), 1):
        assert len(some) == CRITICAL_SIZE
        for text in map(text_of, some):
            assert len(text.split()) <= 50
            answer = evaluated(text)
            levels = []
            for level, start, stop in spans(text):
                answers = [replaced(text, start, stop, digit) for digit in range(10)]
                assert answers == sorted(answers)
                if answers[0] < answer < answers[9]:
                    levels.append(level)
            assert max(level for level, _, _ in spans(text)) == max(levels) == depth
            assert set(levels) == set(range(1, depth + 1))  # and on those around it
            readings = [top_levels(text, levels) for levels in range(1, depth + 3)]
            assert [reading == answer for reading in readings] == [False] * (depth - 1) + [True] * 3


def test_depth_critical_expressions_are_new(
    everything: dict[str, list[Expression]], critical: dict[str, list[Expression]]
) -> None:
    several = [each for some in (everything | critical).values() for each in some]
    assert len(set(several)) == len(several) == 128_000 + 8 * CRITICAL_SIZE
    assert fingerprint(critical) == "6e21945520ee4e9f"


def test_dependency_depth_by_brute_force() -> None:
    for depth in (1, 3, 5):
        for expression in drawn(sets.law_of(depth), 100, seed=depth):
            text = text_of(expression)
            answer = evaluated(text)
            levels = [
                level
                for level, start, stop in spans(text)
                if replaced(text, start, stop, 0) < answer < replaced(text, start, stop, 9)
            ]
            assert depth_critical.dependency_depth(expression) == max(levels, default=0)
            for level in range(1, 6):
                read = tree_of(depth_critical.shallow(expression, level)).values[0]
                assert read == top_levels(text, level)
            assert depth_critical.is_critical(expression) == (
                max(levels, default=0) == depth
                and all(top_levels(text, level) != answer for level in range(1, depth))
            )


def test_ordinary_expressions_hardly_test_depth(everything: dict[str, list[Expression]]) -> None:
    """How often the deepest operators and the lower levels count, as in the paper's test set."""
    rows: dict[str, tuple[tuple[Tensor, Tensor], float, float]] = {}
    for depth, (share, unit) in {
        2: (0.80, 0.01), 3: (0.41, 0.01), 4: (0.16, 0.01), 5: (0.067, 0.001)
    }.items():  # fmt: skip
        counts = torch.tensor([*map(counts_at_the_deepest, everything[f"test-d{depth}"][:400])])
        rows[f"depth {depth}"] = ((counts, torch.ones_like(counts)), share, unit)
    compare(rows, examples=4_000)
    levels = {
        2: (0.585,),
        3: (0.427, 0.830),
        4: (0.362, 0.758, 0.947),
        5: (0.330, 0.712, 0.917, 0.976),
    }
    rows = {}
    for depth, shares in levels.items():
        for level, share in enumerate(shares, 1):
            right = torch.tensor([read_right(e, level) for e in everything[f"test-d{depth}"]])
            of = (right, torch.ones_like(right))
            rows[f"depth {depth}, {level} levels"] = (of, share, 0.001)
    compare(rows, examples=2_000)


def read_right(expression: Expression, levels: int) -> bool:
    read = tree_of(depth_critical.shallow(expression, levels)).values[0]
    return read == tree_of(expression).values[0]


def counts_at_the_deepest(expression: Expression) -> bool:
    """Whether some digit in place of some deepest operator changes the answer."""
    text = text_of(expression)
    answer = evaluated(text)
    deepest = max(level for level, _, _ in spans(text))
    return any(
        replaced(text, start, stop, digit) != answer
        for level, start, stop in spans(text)
        if level == deepest
        for digit in (0, 9)
    )


# Tensors and files of all sets


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


@given(st.lists(st.integers(4, 50), min_size=1))
def test_rows_are_grouped_by_length(lengths: list[int]) -> None:
    groups = rows_by_length(torch.tensor(lengths))
    assert list(groups) == sorted(set(lengths))
    for length, rows in groups.items():
        assert rows.tolist() == [row for row, each in enumerate(lengths) if each == length]


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
