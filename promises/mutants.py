"""Mutants of a module: its source with one small fault each, such as ``<`` for ``<=``.

What is not mutated: annotations and other types, docstrings, ``__all__``, the words of messages (a
text with a space in it), and code for type checkers only. Everything else that stands in the source
is: operators, comparisons, conditions, numbers, names in strings, arguments and their order, values
that are returned, and statements that can be left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

_COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_COMPUTED: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.Div(),
    ast.Div: ast.Mult(),
    ast.FloorDiv: ast.Div(),
    ast.Mod: ast.FloorDiv(),
    ast.Pow: ast.Mult(),
    ast.LShift: ast.RShift(),
    ast.RShift: ast.LShift(),
    ast.BitAnd: ast.BitOr(),
    ast.BitOr: ast.BitAnd(),
    ast.BitXor: ast.BitAnd(),
}


_ANY_ORDER = ("max", "min", "promote_types", "broadcast_shapes")
"""Functions whose arguments may be swapped."""


@dataclass(frozen=True)
class Mutant:
    """One fault: what stands in place of what, and where."""

    module: str
    line: int
    function: str  # with its class; empty for code of the module
    before: str
    after: str
    begin: int  # of what is replaced, in the bytes of the source
    end: int
    in_body: bool  # whether the code of the function changes, and nothing that is run on import
    lines: range  # of the statement

    @property
    def name(self) -> str:
        """The same as long as this code is, wherever in the file it stands."""
        return f"{self.module}: {self.function or 'module'}: {self.before} -> {self.after}"

    def applied_to(self, source: bytes) -> bytes:
        return source[: self.begin] + self.after.encode() + source[self.end :]


def mutants_of(module: str, source: bytes) -> list[Mutant]:
    """All mutants of a module, in the order of its lines; those of one name once."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: dict[tuple[str, int], Mutant] = {}

    def place(node: ast.AST) -> tuple[int, int]:
        begin = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return begin, starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    for node, after, where in _mutations(ast.parse(source), _Where()):
        begin, end = place(node)
        before = source[begin:end].decode()
        number: int = node.lineno  # type: ignore[attr-defined]
        mutant = Mutant(
            module, number, where.function, before, after, begin, end, where.in_body, where.lines
        )
        if before != after:
            found.setdefault((mutant.name, begin), mutant)
    return sorted(found.values(), key=lambda mutant: (mutant.begin, mutant.end, mutant.after))


@dataclass(frozen=True)
class _Where:
    function: str = ""  # the outermost function, with its class
    is_function: bool = False
    in_body: bool = False
    lines: range = range(0)


def _mutations(node: ast.AST, where: _Where) -> Iterator[tuple[ast.AST, str, _Where]]:
    """What may be replaced, and by what, below a node."""
    for child in _children(node):
        inside = where
        if isinstance(node, ast.FunctionDef) and child in node.body:
            inside = replace(inside, in_body=True)
        if isinstance(child, ast.stmt):
            body = getattr(child, "body", None)
            last = body[0].lineno - 1 if body else child.end_lineno or child.lineno
            inside = replace(inside, lines=range(child.lineno, max(last, child.lineno) + 1))
        if isinstance(child, ast.FunctionDef | ast.ClassDef) and not where.is_function:
            path = f"{where.function}.{child.name}".lstrip(".")
            inside = replace(inside, function=path, is_function=isinstance(child, ast.FunctionDef))
        for replaced, after in _of(child):
            yield replaced, after, inside
        yield from _mutations(child, inside)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Without types, docstrings, messages and what only type checkers read."""
    skipped: list[object] = []
    if isinstance(node, ast.FunctionDef):
        skipped += [node.returns, *node.decorator_list]
    if isinstance(node, ast.arg | ast.AnnAssign):
        skipped.append(node.annotation)
    if isinstance(node, ast.Raise):
        skipped += [node.exc, node.cause]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cast":
        skipped += node.args[:1]
    for child in ast.iter_child_nodes(node):
        if child in skipped or isinstance(child, ast.Import | ast.ImportFrom):
            continue
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue  # a docstring
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Assign) and _is_of_types(child):
            continue
        yield child


def _is_of_types(node: ast.Assign) -> bool:
    """``__all__``, and an alias such as ``Dial = int | float``."""
    (target, *_) = node.targets
    if not isinstance(target, ast.Name):
        return False
    alias = target.id[:1].isupper() and not target.id.isupper()
    return target.id == "__all__" or (alias and isinstance(node.value, ast.BinOp | ast.Subscript))


def _of(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """The mutations of one node itself."""
    match node:
        case ast.Compare():
            for k, operator in enumerate(node.ops):
                yield node, _compared(node, k, _COMPARED[type(operator)])
        case ast.BinOp() if type(node.op) in _COMPUTED:
            other = ast.BinOp(node.left, _COMPUTED[type(node.op)], node.right)
            yield node, f"({ast.unparse(other)})"
        case ast.AugAssign() if type(node.op) in _COMPUTED:
            changed = ast.AugAssign(node.target, _COMPUTED[type(node.op)], node.value)
            yield node, ast.unparse(changed)
            yield node, "pass"
        case ast.BoolOp():
            joined = ast.BoolOp(
                ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values
            )
            yield node, f"({ast.unparse(joined)})"
        case ast.UnaryOp() if not isinstance(node.op, ast.UAdd):
            yield node, f"({ast.unparse(node.operand)})"
        case ast.Constant():
            yield from _of_constant(node)
        case ast.Return() if node.value is not None and ast.unparse(node.value) != "None":
            yield node, "return None"
        case ast.Expr() if isinstance(node.value, ast.Call):
            yield node, "pass"
        case ast.Raise() | ast.Continue() | ast.Break():
            yield node, "pass"
        case ast.Assign() if isinstance(node.targets[0], ast.Attribute | ast.Subscript):
            yield node, "pass"
        case ast.If() | ast.IfExp() | ast.While():
            yield node.test, f"(not ({ast.unparse(node.test)}))"
        case ast.comprehension():
            for test in node.ifs:
                yield test, f"(not ({ast.unparse(test)}))"
        case ast.Call():
            yield from _of_call(node)
        case _:
            pass


def _compared(node: ast.Compare, changed: int, by: str) -> str:
    words = [ast.unparse(node.left)]
    for k, (operator, value) in enumerate(zip(node.ops, node.comparators, strict=True)):
        whole = ast.unparse(ast.Compare(ast.Name("_"), [operator], [ast.Name("_")]))
        words += [by if k == changed else whole[2:-2], f"({ast.unparse(value)})"]
    return f"({' '.join(words)})"


def _of_constant(node: ast.Constant) -> Iterator[tuple[ast.AST, str]]:
    value = node.value
    if isinstance(value, bool):
        yield node, str(not value)
    elif isinstance(value, int | float):
        yield node, f"({value + 1!r})"
    elif isinstance(value, str) and " " not in value:
        yield node, repr("XX" + value)


def _of_call(node: ast.Call) -> Iterator[tuple[ast.AST, str]]:
    plain = [one for one in node.args if not isinstance(one, ast.Starred)]
    if len(plain) == len(node.args) >= 2 and not ast.unparse(node.func).endswith(_ANY_ORDER):
        first, second, *rest = node.args
        yield node, ast.unparse(ast.Call(node.func, [second, first, *rest], node.keywords))
    for left_out in node.keywords:
        if left_out.arg is not None:
            rest_of = [one for one in node.keywords if one is not left_out]
            yield node, ast.unparse(ast.Call(node.func, node.args, rest_of))
