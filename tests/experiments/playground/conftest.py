"""The page, and a browser to open it in: once for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chromium import Browser, Tab
from dcgraph.experiments.playground.build import build


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("playground") / "playground.html"
    path.write_text(build())
    return path


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="session")
def tab(browser: Browser, page: Path) -> Tab:
    """The page, to compute with."""
    return browser.open(page, 1200)
