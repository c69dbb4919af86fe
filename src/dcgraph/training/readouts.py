"""Numbers of a record as people read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def by_set(names: Iterable[str]) -> tuple[list[str], list[str], list[str]]:
    """Names that stand for themselves; and the sets and measures of those that are "SET MEASURE".

    A name is of the second kind if another set has the same measure. A set may end in a comma,
    which is not for show.

    >>> by_set(["accuracy/argmax", "best on test", "d8 task/argmax", "d10 task/argmax"])
    (['accuracy/argmax', 'best on test'], ['d8', 'd10'], ['task/argmax'])
    """
    names = list(names)
    measures = Counter(name.partition(" ")[2] for name in names if " " in name)
    of_sets = [name for name in names if measures[name.partition(" ")[2]] > 1]
    alone = [name for name in names if name not in of_sets]
    sets = dict.fromkeys(name.partition(" ")[0] for name in of_sets)
    return alone, list(sets), list(dict.fromkeys(name.partition(" ")[2] for name in of_sets))
