"""The lock file agrees with what `make` installs; the list of what is installed is whole."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_lock_file_has_a_checksum_for_everything_and_the_versions_of_make() -> None:
    entries = re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text())
    locked = {}
    for entry in entries:
        if not entry.startswith("#"):
            name, version = re.match(r"([\w.-]+)==([^\s;]+)", entry).groups()  # type: ignore[union-attr]
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), name
            locked[name] = version
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("#")[0].strip().split("==") for line in lines if line[:1] != "#")
    pinned = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pinned.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (build,) = project["build-system"]["requires"]
    assert project["dependency-groups"]["build"] == [build]
    pinned["hatchling"] = build.removeprefix("hatchling==")
    shared = locked.keys() & pinned.keys()
    assert {"torch", "jaxtyping", "numpy", "matplotlib", "hatchling"} <= shared
    assert {name: locked[name] for name in shared} == {name: pinned[name] for name in shared}


def test_the_list_of_what_is_installed_is_whole() -> None:
    listed = runpy.run_path(str(ROOT / "tools" / "sbom.py"))["sbom"]()
    known = {part["bom-ref"] for part in listed["components"]}
    assert {"torch", "jaxtyping", "numpy", "jinja2"} <= {p["name"] for p in listed["components"]}
    assert len(known) == len(listed["components"]) == len(listed["dependencies"]) - 1
    known.add(listed["metadata"]["component"]["bom-ref"])
    for entry in listed["dependencies"]:
        assert {entry["ref"], *entry["dependsOn"]} <= known


def test_ci_runs_targets_of_the_makefile_on_every_python_that_is_named() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    makefile = (ROOT / "Makefile").read_text()
    steps = re.findall(r"- run: (.*)", workflow)
    assert steps and all(step.startswith("make ") for step in steps)
    targets = {name for step in steps for name in step.split("#")[0].split()[1:]}
    assert targets <= set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    versions = [name.split(" :: ")[-1] for name in classifiers if "Python :: 3" in name]
    assert re.search(r"python: \[(.*)\]", workflow)[1] == ", ".join(f'"{v}"' for v in versions)  # type: ignore[index]
    assert f"({', '.join(versions[:-1])} or {versions[-1]})" in makefile
