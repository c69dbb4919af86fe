"""Reads the imports of a package with ast, without importing it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Where = Literal["module", "function", "type checking"]


@dataclass(frozen=True)
class Import:
    """One module that another one imports, by their full names."""

    importer: str
    imported: str
    where: Where
    line: int

    def __str__(self) -> str:
        return f"{self.importer}, line {self.line}: imports {self.imported} ({self.where})"


def modules_of(root: Path) -> dict[str, Path]:
    """Full names of all modules of the package at ``root``; a package's name is its __init__'s."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = (root.name, *path.relative_to(root).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(root: Path) -> list[Import]:
    """Every import statement of the package at ``root``."""
    modules = modules_of(root)
    return [
        Import(name, _module(target, modules), where, line)
        for name, path in modules.items()
        for target, where, line in _statements(name, path)
    ]


def _module(target: str, modules: dict[str, Path]) -> str:
    """``from a import b`` is the module a.b where there is one, and a where there is none."""
    root = next(iter(modules)).partition(".")[0]
    if target not in modules and target.partition(".")[0] == root:
        return target.rpartition(".")[0]
    return target


def _statements(name: str, path: Path) -> Iterator[tuple[str, Where, int]]:
    package = name if path.stem == "__init__" else name.rpartition(".")[0]

    def visit(node: ast.AST, where: Where) -> Iterator[tuple[str, Where, int]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            where = "function"
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            checked = isinstance(node.test, ast.Name)
            for child in node.body:
                yield from visit(child, "type checking" if checked else where)
            for child in node.orelse:
                yield from visit(child, where if checked else "type checking")
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, where, node.lineno
        if isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            above = parts[: len(parts) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                ours = inside(base, parts[0])
                yield f"{base}.{alias.name}" if ours else base, where, node.lineno
        for inner in ast.iter_child_nodes(node):
            yield from visit(inner, where)

    return visit(ast.parse(path.read_text()), "module")


def inside(module: str, package: str) -> bool:
    """Whether it is that package, or a module of it."""
    return module == package or module.startswith(f"{package}.")


Layers = list[list[str]]
"""Packages and modules from the lowest layer to the highest."""


def layer_of(module: str, layers: Layers) -> tuple[int, str] | None:
    """The layer of a module and the entry that it belongs to: the longest one."""
    found = [
        (len(entry), number, entry)
        for number, layer in enumerate(layers)
        for entry in layer
        if inside(module, entry)
    ]
    return max(found)[1:] if found else None


def upwards(imports: list[Import], layers: Layers) -> list[str]:
    """Imports that do not go down: to a higher layer, or to a neighbour in the same one."""
    wrong = []
    for one in imports:
        source, target = layer_of(one.importer, layers), layer_of(one.imported, layers)
        if one.where == "type checking" or source is None or target is None:
            continue
        if source[1] != target[1] and target[0] >= source[0]:
            wrong.append(str(one))
    return wrong


def without_layer(root: Path, layers: Layers) -> list[str]:
    return [module for module in modules_of(root) if layer_of(module, layers) is None]


def cycle(imports: list[Import]) -> list[str]:
    """A chain of modules that import each other when they are imported, or an empty list."""
    graph: dict[str, set[str]] = {}
    for one in imports:
        if one.where == "module":
            graph.setdefault(one.importer, set()).add(one.imported)
    done: set[str] = set()
    chain: list[str] = []

    def visit(module: str) -> list[str]:
        if module in chain:
            return [*chain[chain.index(module) :], module]
        if module in done:
            return []
        chain.append(module)
        for imported in sorted(graph.get(module, ())):
            if found := visit(imported):
                return found
        chain.pop()
        done.add(module)
        return []

    for module in sorted(graph):
        if found := visit(module):
            return found
    return []


def reached(module: str, imports: list[Import]) -> set[str]:
    """All that is imported with a module: what it imports, and the packages these are in."""
    graph: dict[str, set[str]] = {}
    for one in imports:
        if one.where == "module":
            graph.setdefault(one.importer, set()).add(one.imported)
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [*graph.get(name, ()), *filter(None, [name.rpartition(".")[0]])]
    return found
