"""Settings of the site: Sphinx, because the docstrings are written for it.

Everything a page needs is in the site: formulas become MathML at build time, which browsers show
without a script, and the search runs in the page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from sphinx.application import Sphinx

import dcgraph
from dcgraph.experiments.cli.tables import write_page
from dcgraph.experiments.engine.records import read_probes, read_record
from dcgraph.experiments.playground.build import build
from dcgraph.experiments.report import Replica, write_report
from dcgraph.experiments.tasks import get_table, get_task

project = "dcgraph"
author = "dcgraph contributors"
copyright = author
version = release = dcgraph.__version__

extensions = [
    "mathml",  # of this folder
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["checks"]
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!dcgraph).*"),  # names of torch, and shapes
    (r"py:.*", r"dcgraph\.(.*\.)?_.*"),  # what is private, in signatures
]
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: name for name in ("Dial", "InDims", "Noise", "PerReplica", "Setting")}
python_maximum_signature_line_length = 72
autodoc_default_options = {"members": True, "exclude-members": "extra_repr"}
napoleon_use_rtype = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "dcgraph"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
highlight_language = "none"  # what a command prints is no Python
pygments_style = "friendly"
pygments_dark_style = "monokai"


_ELSEWHERE = {"](../benchmarks/README.md": "](benchmarks.md", "](../docs/": "](", "](docs/": "]("}
"""Links that lead out of this folder in the repository, and to the same page in the site."""


def _within(text: list[str]) -> None:
    for link, here in _ELSEWHERE.items():
        text[0] = text[0].replace(link, here)
    # A number and its spread stay in one line.
    text[0] = re.sub(r"(?<=\d) ± (?=\d)", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}", text[0])


def _named(signature: str | None) -> str | None:
    """A signature with the names of its type aliases, where Sphinx shows their internal form.

    A protocol has no arguments to show.
    """
    if signature == "(*args, **kwargs)":
        return ""
    return signature and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", signature)


def _add_pages(app: Sphinx, error: Exception | None) -> None:
    """Pages that commands write stand beside the others: the playground, and two reports."""
    if error is not None or app.builder.format != "html":
        return
    out, root = Path(app.outdir), Path(__file__).parents[1]
    (out / "playground.html").write_text(build())
    _lead_back(out / "playground.html", '<p class="brand">dcgraph</p>', "")
    table = get_table("addition-ablation")
    page = out / "report-addition-ablation.html"
    write_page(table, get_task(table.task), root / "results", page)
    record = root / "results" / "listops" / "shipped" / "seed-0.json"
    model = root / "src" / "dcgraph" / "experiments" / "tasks" / "listops" / "best.safetensors"
    write_report(
        out / "report-listops.html",
        get_task("listops"),
        [Replica("preset best", read_record(record), read_probes(record), model)],
        title="dcgraph: listops, the model in the package",
        command="dcgraph train listops --preset best",
    )
    for name in ("report-addition-ablation.html", "report-listops.html"):
        _lead_back(out / name, "<h1>", "<h1>")


def _lead_back(page: Path, mark: str, then: str) -> None:
    """Put a link to the site in place of a mark of a page that stands on its own elsewhere."""
    before, found, after = page.read_text().partition(mark)
    if not found:
        raise ValueError(f"{page.name} has no {mark}")
    link = '<p class="brand"><a href="index.html" style="color: inherit">dcgraph</a></p>'
    page.write_text(f"{before}{link}\n{then}{after}")


def setup(app: Sphinx) -> None:
    app.connect(
        "autodoc-process-signature",
        lambda app, what, name, obj, options, signature, returns: (
            _named(signature),
            _named(returns),
        ),
    )
    app.connect("source-read", lambda app, name, text: _within(text))
    app.connect("build-finished", _add_pages)
    app.connect("include-read", lambda app, path, name, text: _within(text))
