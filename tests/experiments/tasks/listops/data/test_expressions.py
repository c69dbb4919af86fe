"""The language of ListOps: text, trees, values, files, and what is malformed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from dcgraph.experiments.engine.errors import DataError
from dcgraph.experiments.tasks.listops.data import expressions
from dcgraph.experiments.tasks.listops.data.expressions import parse, text_of, tree_of
from listops_oracles import (
    TREES,
    Nested,
    depth_of,
    evaluated,
    flat,
    value_of,
    written,
)


@given(TREES)
def test_text_to_tree_to_text(tree: Nested) -> None:
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
