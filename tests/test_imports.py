"""Imports go one way: read with ast, so that none is missed and nothing has to be imported.

The library never imports the experiments; inside each storey imports go down a list of layers; no
modules import each other in a circle; and an import inside a function needs a reason.
"""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

import dcgraph
from imports import (
    Layers,
    cycle,
    imports_of,
    inside,
    layer_of,
    modules_of,
    reached,
    upwards,
    without_layer,
)

ROOT = Path(dcgraph.__file__).parent
IMPORTS = imports_of(ROOT)

LIBRARY: Layers = [  # from the lowest to the highest
    ["dcgraph._lazy", "dcgraph._arguments", "dcgraph.kernels"],
    ["dcgraph._checks", "dcgraph._streams", "dcgraph.schedules"],
    ["dcgraph.noise", "dcgraph._philox", "dcgraph._dialled", "dcgraph._ranks", "dcgraph.init"],
    ["dcgraph.functional", "dcgraph.distributed"],
    ["dcgraph._observe", "dcgraph.residual", "dcgraph.estimators", "dcgraph.distributions"],
    ["dcgraph.codebook", "dcgraph.dials"],
    ["dcgraph.nodes"],
    ["dcgraph._surrogate"],
    ["dcgraph.structures", "dcgraph.inspect", "dcgraph.population", "dcgraph.frameworks"],
    ["dcgraph.pruning"],
]

EXPERIMENTS: Layers = [
    ["dcgraph.experiments.engine"],
    ["dcgraph.experiments.tasks", "dcgraph.experiments.compare"],
    ["dcgraph.experiments.report"],
    ["dcgraph.experiments.figures", "dcgraph.experiments.playground"],
    ["dcgraph.experiments.cli"],
]

NAMES_ONLY = ["dcgraph", "dcgraph.experiments"]
"""Their __init__ imports nothing, except for the helper that does so later."""

STARTS_THE_COMMAND_LINE = "dcgraph.__main__"
"""``python -m dcgraph`` is the only place of the lower storey that knows the upper one."""

IN_FUNCTIONS = {  # importer, imported: why it is not at the top of the module
    ("dcgraph.*", "dcgraph.kernels._*"): "imports Triton, which is optional and takes a second",
    ("dcgraph.nodes", "dcgraph.distributed._parameter"): "imports DTensor, which takes a second",
    ("dcgraph.dials", "dcgraph._dialled"): "imports torch, without which schedules are computed",
    ("dcgraph.dials", "dcgraph._ranks"): "imports torch, without which schedules are computed",
    ("dcgraph.dials", "dcgraph._observe"): "imports torch, without which schedules are computed",
    ("dcgraph.experiments.tasks.*", "*.kernels*"): "imports Triton",
    ("dcgraph.experiments.tasks", "dcgraph.experiments.engine.task"): "imports torch, and tables "
    "are shown without",
    ("dcgraph.experiments.cli*", "dcgraph.experiments.*"): "imports torch, and --help answers "
    "without",
    ("dcgraph.experiments.cli*", "torch"): "--help answers without",
    ("dcgraph.experiments.*", "tqdm"): "extra cli",
    ("dcgraph.experiments.*", "safetensors*"): "extra cli",
    ("dcgraph.experiments.*", "jinja2"): "extra cli",
    ("dcgraph.experiments.*", "numpy"): "extra cli",
    ("dcgraph.experiments.*", "markupsafe"): "comes with jinja2, extra cli",
    ("dcgraph.experiments.*", "PIL"): "extra cli",
    ("dcgraph.experiments.*", "*tensorboard*"): "extra tensorboard",
}

WITHOUT_TORCH = [
    "dcgraph",
    "dcgraph._arguments",
    "dcgraph.dials",
    "dcgraph.kernels",
    "dcgraph.schedules",
    *(f"dcgraph.experiments.{name}" for name in ("cli", "engine", "figures", "tasks")),
    *(
        f"dcgraph.experiments.cli.{name}"
        for name in ("parsing", "playground", "search", "tables", "tasks", "train")
    ),
    "dcgraph.experiments.playground.build",
    *(
        f"dcgraph.experiments.engine.{name}"
        for name in ("errors", "files", "jobs", "metrics", "records", "settings", "tables")
    ),
    *(
        f"dcgraph.experiments.tasks.{task}.{name}"
        for task in ("addition", "listops", "paths")
        for name in ("settings", "tables")
    ),
    "dcgraph.experiments.compare.chains_record",
]


def test_every_module_has_a_layer() -> None:
    rest = without_layer(ROOT, LIBRARY + EXPERIMENTS)
    assert sorted(rest) == sorted([*NAMES_ONLY, STARTS_THE_COMMAND_LINE])
    for name in NAMES_ONLY:
        own = [one for one in IMPORTS if one.importer == name and one.where == "module"]
        assert {one.imported for one in own} <= {"typing", "dcgraph._lazy"}


def test_the_library_never_imports_the_experiments() -> None:
    wrong = [
        str(one)
        for one in IMPORTS
        if inside(one.imported, "dcgraph.experiments")
        and not inside(one.importer, "dcgraph.experiments")
        and one.importer != STARTS_THE_COMMAND_LINE
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("layers", [LIBRARY, EXPERIMENTS], ids=["library", "experiments"])
def test_imports_go_down(layers: Layers) -> None:
    wrong = upwards(IMPORTS, layers)
    assert not wrong, "\n".join(wrong)


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert not (found := cycle(IMPORTS)), " imports ".join(found)


def test_imports_inside_functions_have_a_reason() -> None:
    used = set()
    wrong = []
    for one in (one for one in IMPORTS if one.where == "function"):
        rules = [
            rule
            for rule in IN_FUNCTIONS
            if fnmatch(one.importer, rule[0]) and fnmatch(one.imported, rule[1])
        ]
        used.update(rules)
        if not rules:
            wrong.append(str(one))
    assert not wrong, "\n".join(wrong)
    assert used == set(IN_FUNCTIONS), f"no longer needed: {set(IN_FUNCTIONS) - used}"


@pytest.mark.parametrize("module", WITHOUT_TORCH)
def test_modules_without_torch(module: str) -> None:
    assert module in modules_of(ROOT)
    heavy = [name for name in reached(module, IMPORTS) if inside(name, "torch")]
    assert not heavy


def test_these_tests_can_fail(tmp_path: Path) -> None:
    """On a small package in which everything is wrong once."""
    files = {
        "__init__": "",
        "low": "from . import high",
        "high": "from .room.inner import thing\n",
        "room/__init__": "if TYPE_CHECKING:\n    from .. import high\nelse:\n    import typing",
        "room/inner": "import os\n\ndef late():\n    import torch.nn\n    from ..low import x",
        "one": "from .two import a",
        "two": "from . import three",
        "three": "from dcgraph.one import b",
    }
    root = tmp_path / "dcgraph"
    for name, text in files.items():
        path = root / f"{name}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    imports = imports_of(root)
    found = {(one.importer, one.imported, one.where) for one in imports}
    assert found == {
        ("dcgraph.low", "dcgraph.high", "module"),
        ("dcgraph.high", "dcgraph.room.inner", "module"),
        ("dcgraph.room", "typing", "module"),
        ("dcgraph.room", "dcgraph.high", "type checking"),
        ("dcgraph.room.inner", "os", "module"),
        ("dcgraph.room.inner", "torch.nn", "function"),
        ("dcgraph.room.inner", "dcgraph.low", "function"),
        ("dcgraph.one", "dcgraph.two", "module"),
        ("dcgraph.two", "dcgraph.three", "module"),
        ("dcgraph.three", "dcgraph.one", "module"),
    }
    layers = [["dcgraph.low"], ["dcgraph.room"], ["dcgraph.high"]]
    assert upwards(imports, layers) == ["dcgraph.low, line 1: imports dcgraph.high (module)"]
    neighbours = [["dcgraph.low"], ["dcgraph.room", "dcgraph.high"]]
    assert len(upwards(imports, neighbours)) == 2, "nor do they go sideways"
    assert layer_of("dcgraph.room.inner", layers) == (1, "dcgraph.room")
    assert without_layer(root, layers) == ["dcgraph", "dcgraph.one", "dcgraph.three", "dcgraph.two"]
    assert cycle(imports) == ["dcgraph.one", "dcgraph.two", "dcgraph.three", "dcgraph.one"]
    assert cycle([one for one in imports if one.importer != "dcgraph.three"]) == []
    assert "os" in reached("dcgraph.low", imports), "also by way of others"
    assert not any(inside(name, "torch") for name in reached("dcgraph.low", imports))
    assert "typing" in reached("dcgraph.high", imports), "with the packages that a module is in"
