"""A Sphinx extension: formulas as MathML, made when the site is built.

Browsers show MathML by themselves, so that a page needs no script and no font from elsewhere.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

_UNKNOWN = {
    r"\arg\max": r"\operatorname{arg\,max}",
    r"\arg\min": r"\operatorname{arg\,min}",
}
"""Commands of LaTeX that the converter leaves as they are, and what it knows instead."""


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_inline, None), block_renderers=(_block, None)
    )
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def mathml(formula: str, display: str = "inline") -> str:
    """A formula in LaTeX as an element; a command that stays unknown is an error."""
    for command, known in _UNKNOWN.items():
        formula = formula.replace(command, known)
    element = convert(formula, display=display)
    if "\\" in element:
        raise ExtensionError(f"the formula {formula!r} has a command without MathML.")
    return element


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math">{mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode
