"""Pages as a parser and as a browser see them."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

_VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Elements with their attributes; an element that is not closed where it should be fails."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
in_browser = pytest.mark.skipif(
    not CHROMIUM, reason="no Chromium is installed (Debian: apt-get install chromium)"
)


def browse(page: Path | str, profile: Path, *options: str) -> tuple[str, list[str]]:
    """A file or address as the browser sees it after its scripts ran; what its console says."""
    command = [
        *(CHROMIUM, "--headless", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--virtual-time-budget=5000", "--enable-logging=stderr", "--v=0"),
        f"--user-data-dir={profile}",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),  # which refuses to serve root
        *options,
        "--dump-dom",
        page if isinstance(page, str) else page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


_MEASURE = """
<body><iframe style="width: WIDTHpx; height: 800px" srcdoc="PAGE"></iframe><script>
const frame = document.querySelector("iframe");
frame.onload = () => {
  const page = frame.contentDocument, seen = (tag) => [...page.querySelectorAll(tag)];
  document.body.innerHTML = JSON.stringify({
    overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
    charts: seen("svg:not(.key)").map((svg) => svg.getBoundingClientRect().width),
    images: seen("img").map((image) => image.naturalWidth),
    paper: getComputedStyle(page.body).backgroundColor,
  });
};
</script>"""


def measured_in_browser(
    page: Path, folder: Path, width: int, scheme: str
) -> tuple[dict[str, Any], list[str]]:
    """What a frame of a width shows of a page, in the light or dark scheme; and the console."""
    harness = folder / "harness.html"
    inside = html.escape(page.read_text(), quote=True)
    harness.write_text(_MEASURE.replace("WIDTH", str(width)).replace("PAGE", inside))
    setting = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    seen, console = browse(harness, folder / "profile", setting)
    match = re.search(r"<body>(\{.*\})</body>", seen, flags=re.DOTALL)
    assert match, seen[:500]
    return json.loads(match[1]), console
