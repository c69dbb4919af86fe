"""What a run was made with, and where its numbers come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from .groups import Group


def settings_of(groups: Sequence[Group]) -> dict[str, Any]:
    """What all groups share, what they differ in, and where the numbers come from."""
    values = [asdict(group.settings) for group in groups]  # older records lack younger ones
    differing = [n for n in values[0] if n != "seed" and len({str(v[n]) for v in values}) > 1]
    records = [replica.record for group in groups for replica in group.replicas]

    def all_of(name: str) -> str:
        return ", ".join(sorted({str(record[name]) for record in records}))

    return {
        "shared": [(n, v) for n, v in values[0].items() if n not in (*differing, "seed")],
        "differing": differing,
        "by_group": [
            (group.name, [value[name] for name in differing])
            for group, value in zip(groups, values, strict=True)
        ],
        "seeds": _ranges(sorted({record["settings"]["seed"] for record in records})),
        "origin": [
            ("dcgraph", all_of("code")),
            ("torch", all_of("torch")),
            ("hardware", all_of("hardware")),
            ("data, fingerprint", all_of("data")),
            ("populations", ", ".join(sorted({r["population"]["name"] for r in records}))),
        ],
    }


def _ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers, runs of them as ranges.

    >>> _ranges([0, 1, 2, 5, 7, 8])
    '0 to 2, 5, 7 to 8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]} to {r[-1]}" for r in runs)
