"""Public names that are imported when they are first asked for (PEP 562).

So ``import dcgraph`` costs nothing, and a schedule or a table of records needs no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module


def lazy(
    package: str, names: Mapping[str, Collection[str]], modules: Collection[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package; imports for type checkers stand beside them.

    Args:
        package: its ``__name__``.
        names: for each of its modules the names that the package takes from there.
        modules: those that can be reached as attributes without an import statement.

    >>> from dcgraph._lazy import lazy
    >>> get, listed = lazy("dcgraph", {"schedules": ["constant"]}, ["schedules"])
    >>> get("constant")(8.0), get("schedules").__name__
    (constant(8.0), 'dcgraph.schedules')
    >>> {"constant", "schedules"} <= set(listed())
    True
    """
    homes = {name: module for module, some in names.items() for name in some}

    def get(name: str) -> object:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)  # so that it is asked for only once
        return value

    def listed() -> list[str]:
        dunders = (name for name in vars(sys.modules[package]) if name.startswith("__"))
        return sorted({*homes, *modules, *dunders})

    return get, listed
