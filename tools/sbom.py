"""Writes what is installed for dcgraph as a list in CycloneDX JSON: python tools/sbom.py FILE.

Of the extras "cli" and "viz", with all that these need. A program of our own, because the format is
small, and one more package with its own dependencies is what such a list is to warn of.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

_EXTRAS = "cli", "viz"


def normal(name: str) -> str:
    """As the package index has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(found: Distribution, extras: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What it needs on this machine, each with the extras that are asked of it."""
    for line in found.requires or []:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield normal(requirement.name), tuple(requirement.extras)


def closure(root: str) -> tuple[dict[str, Distribution], dict[str, list[str]]]:
    """All that is needed, and by what; what is not installed is left out."""
    found: dict[str, Distribution] = {}
    needs: dict[str, set[str]] = {}
    waiting: list[tuple[str, tuple[str, ...]]] = [(root, _EXTRAS)]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue
        below = list(needed(found[name], extras))
        needs.setdefault(name, set()).update(other for other, _ in below)
        waiting += below
    return found, {name: sorted(needs[name] & found.keys()) for name in sorted(found)}


def component(name: str, of: Distribution) -> dict[str, Any]:
    version = of.version
    purl = f"pkg:pypi/{name}@{version.replace('+', '%2B')}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def sbom(root: str = "dcgraph") -> dict[str, Any]:
    found, needs = closure(root)
    components = {name: component(name, found[name]) for name in sorted(found)}
    own = components.pop(root)
    refs = {name: part["bom-ref"] for name, part in components.items()} | {root: own["bom-ref"]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": list(components.values()),
        "dependencies": [
            {"ref": refs[name], "dependsOn": [refs[other] for other in others]}
            for name, others in needs.items()
        ],
    }


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(sbom(), indent=1) + "\n")
