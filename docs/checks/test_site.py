"""The site builds without a warning, has every public name, and stays within itself."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest
from sphinx.util.inventory import InventoryFile

import dcgraph
from pages import browse, in_browser

ROOT = Path(__file__).parents[2]
ROOMS = [
    *("dcgraph", "dcgraph.codebook", "dcgraph.estimators", "dcgraph.init", "dcgraph.inspect"),
    *("dcgraph.population", "dcgraph.structures"),
]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", str(folder / "work"), str(ROOT / "docs"), str(folder / "html")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    found = {name for kind, of in inventory.data.items() if kind.startswith("py:") for name in of}
    for room in ROOMS:
        for name in importlib.import_module(room).__all__:
            if not isinstance(getattr(dcgraph, name, None), ModuleType):
                places = {f"{room}.{name}", f"dcgraph.{name}"}  # mix stands only at the top
                assert places & found, f"{room}.{name} is on no page of docs/reference"


def test_nothing_of_a_page_comes_from_elsewhere(site: Path) -> None:
    """A link may lead out; what a page loads may not."""
    for page in site.rglob("*.html"):
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|iframe)[^>]* src=\"([^\"]+)", text)
        loaded += re.findall(r"<link[^>]* rel=\"stylesheet\"[^>]* href=\"([^\"]+)", text)
        whole = page.name == "playground.html" or page.name.startswith("report-")
        assert loaded or whole, "which have all of it inside"
        assert not [place for place in loaded if re.match(r"(https?:)?//", place)], page


def test_formulas_are_mathml_without_an_unknown_command(site: Path) -> None:
    page = (site / "reference" / "functions.html").read_text()
    assert page.count("<math") >= 5
    for formula in re.findall(r"<math.*?</math>", page, flags=re.DOTALL):
        assert "\\" not in formula


def test_links_between_pages_lead_to_headings(site: Path) -> None:
    """Sphinx checks those of Markdown; these are all of them, as they came out."""
    ids = {
        page: set(re.findall(r" id=\"([^\"]+)\"", page.read_text()))
        for page in site.rglob("*.html")
    }
    assert len(ids) > 20
    for page in ids:
        for target in re.findall(r"<a [^>]*href=\"([^\"]+)\"", page.read_text()):
            if re.match(r"\w+:", target):
                continue
            file, _, heading = target.partition("#")
            other = (page.parent / file).resolve() if file else page
            assert other.exists(), f"{page.name}: {target}"
            if heading and other in ids:
                assert heading in ids[other], f"{page.name}: {target}"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the tests read what the browser says."""


@pytest.fixture(scope="session")
def served(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


_HARNESS = """<!doctype html><meta charset="utf-8"><body><script>
const seen = {}, pages = PAGES;
async function look(page) {
  const frame = document.createElement("iframe");
  frame.style = "width: WIDTHpx; height: 800px";
  frame.src = page;
  await new Promise((done) => { frame.onload = done; document.body.append(frame); });
  const root = frame.contentDocument.documentElement;
  seen[page] = {
    overflow: root.scrollWidth - root.clientWidth,
    images: [...frame.contentDocument.images].filter((image) => image.getAttribute("src"))
      .filter((image) => image.complete && !image.naturalWidth).length,
  };
  frame.remove();
}
(async () => {
  for (const page of pages) await look(page);
  document.body.textContent = JSON.stringify(seen);
})();
</script></body>"""


@in_browser
@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_and_say_nothing_on_the_console(
    site: Path, served: str, tmp_path: Path, width: int, scheme: str
) -> None:
    pages = sorted(page.relative_to(site).as_posix() for page in site.rglob("*.html"))
    pages = [page for page in pages if not page.startswith("harness")]
    name = f"harness-{width}-{scheme}.html"
    text = _HARNESS.replace("PAGES", json.dumps(pages)).replace("WIDTH", str(width))
    (site / name).write_text(text)
    setting = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    shown, console = browse(f"{served}/{name}", tmp_path, setting)
    match = re.search(r"<body>(\{.*\})", shown, flags=re.DOTALL)
    assert match, shown[:500]
    seen = json.loads(match[1])
    assert sorted(seen) == pages
    assert {
        page: found for page, found in seen.items() if found["overflow"] or found["images"]
    } == {}
    assert console == []
