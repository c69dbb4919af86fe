"""Numbers of a record as people read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

Layout = dict[str, dict[str, str]]
"""Names of numbers by row and column; not all of them need to exist."""


def by_set(names: Iterable[str]) -> tuple[list[str], Layout]:
    """Names that stand for themselves, and a grid of those that are "SET MEASURE".

    A name is of the second kind if another set has the same measure. A set may end in a comma,
    which is not for show. Rows are sets or, where there are more of them, measures: screens are
    narrow.

    >>> by_set(["accuracy", "best on test", "d8, task", "d10, task"])
    (['accuracy', 'best on test'], {'d8': {'task': 'd8, task'}, 'd10': {'task': 'd10, task'}})
    """
    names = list(names)
    common = Counter(name.partition(" ")[2] for name in names if " " in name)
    of_sets = [name for name in names if common[name.partition(" ")[2]] > 1]
    alone = [name for name in names if name not in of_sets]
    sets = {name.partition(" ")[0]: None for name in of_sets}
    measures = {name.partition(" ")[2]: None for name in of_sets}
    shown = {one: one if (bare := one.removesuffix(",")) in sets else bare for one in sets}
    if len(measures) > len(sets):
        return alone, {m: {shown[one]: f"{one} {m}" for one in sets} for m in measures}
    return alone, {shown[one]: {m: f"{one} {m}" for m in measures} for one in sets}
