"""The package: its public names, what they need, and that everything public explains itself."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

import dcgraph as dc
from imports import modules_of


def run(program: str) -> None:
    """In a fresh process, which has imported nothing yet."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_import_needs_torch_and_jaxtyping_only() -> None:
    extras = ["beartype", "hypothesis", "matplotlib", "pytest", "tqdm", "triton", "numpy", "PIL"]
    run(f"import sys; sys.modules.update(dict.fromkeys({extras})); from dcgraph import *")


def test_importing_the_package_or_a_schedule_imports_no_torch() -> None:
    run(
        "import sys, dcgraph as dc\n"
        "dials = dc.Dials(tau=8.0, beta=dc.temp_match(8.0, 0.1), alpha=dc.linear(0, 1, 5))\n"
        "assert dials.at(5)['alpha'] == 1.0\n"
        "assert 'torch' not in sys.modules"
    )


def test_no_public_name_imports_the_compiler_or_triton() -> None:
    """They take as long as torch itself."""
    run(
        "import sys\n"
        "from dcgraph import *\n"
        "assert 'torch' in sys.modules\n"
        "assert not {'torch._dynamo', 'torch._inductor', 'triton'} & set(sys.modules)"
    )


def test_public_names_resolve_and_have_docstrings() -> None:
    for name in dc.__all__:
        assert (getattr(dc, name).__doc__ or "").strip(), name
        assert name in dir(dc)


def test_a_listing_shows_no_helpers() -> None:
    listed = [name for name in dir(dc) if not (name.startswith("__") and name.endswith("__"))]
    assert set(listed) <= {
        *dc.__all__,
        *(name.removeprefix("dcgraph.") for name in public_modules()),
    }


def test_type_checkers_see_the_public_names() -> None:
    """What they read under TYPE_CHECKING is what is imported when it is asked for."""
    tree = ast.parse(Path(dc.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    found = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(found) == dc.__all__
    for name, module in found.items():
        if module is not None:
            assert getattr(dc, name) is getattr(getattr(dc, module), name)


def test_modules_are_reached_without_an_import_statement() -> None:
    assert dc.nodes.__name__ == "dcgraph.nodes"
    run(
        "import sys, dcgraph as dc\n"
        "assert dc.codebook.mix is dc.mix\n"
        "assert 'dcgraph.nodes' not in sys.modules\n"
        "assert dc.nodes.Discrete is dc.Discrete"
    )
    with pytest.raises(AttributeError, match="'dcgraph' has no attribute 'log_sum_exp'"):
        dc.log_sum_exp  # type: ignore[attr-defined]  # noqa: B018


def public_modules() -> list[str]:
    """All of the library that has no underscore in its name, except for the kernels."""
    library = (name for name in modules_of(Path(dc.__file__).parent) if "experiments" not in name)
    return [name for name in library if "._" not in name and name != "dcgraph.kernels"]


@pytest.mark.parametrize("name", public_modules())
def test_public_modules_say_what_they_promise(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__ and module.__all__
    for public in module.__all__:
        value = getattr(module, public)
        if isinstance(value, type | FunctionType):
            assert (value.__doc__ or "").strip(), f"{name}.{public}"
