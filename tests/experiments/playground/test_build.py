"""The page as a file: whole, small, self-contained, and the same every time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dcgraph.experiments import cli
from dcgraph.experiments.playground import build as module
from dcgraph.experiments.playground.build import LARGEST, build, bundle
from pages import Page


def test_the_page_is_small_and_repeats(page: Path) -> None:
    content = page.read_bytes()
    assert len(content) < LARGEST
    program = "from dcgraph.experiments.playground.build import build; print(build(), end='')"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONIOENCODING": "utf-8"}
    again = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment)
    assert again.stdout == content


def test_it_needs_nothing_else(page: Path) -> None:
    read = Page(re.sub(r"<script.*?</script>", "", page.read_text(), flags=re.DOTALL))
    for _, attributes in read.elements:
        for name in ("src", "href", "srcset", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:"))
        assert not any(name.startswith("on") for name in attributes)
    (policy,) = [one for one in read.all("meta") if "http-equiv" in one]
    assert "default-src 'none'" in (policy["content"] or ""), "the browser keeps the page to itself"
    outside = set(re.findall(r"\w+:/+[^\"'\s<]*", page.read_text()))
    assert outside == {"http://www.w3.org/2000/svg"}, "the name of a format, which is not fetched"
    assert not re.search(r"@import|url\(|\bfetch\(|XMLHttpRequest|\beval\(", page.read_text())


def test_every_panel_has_a_heading_a_link_and_two_sentences_to_try(page: Path) -> None:
    text = page.read_text()
    panels = re.findall(r'<section id="(\w+)" aria-labelledby="(\w+)-title">', text)
    assert len(panels) == 5 and all(name == title for name, title in panels)
    assert [f"#{name}" for name, _ in panels] == re.findall(r'<a href="(#\w+)">', text)
    for about in re.findall(r'<p class="try">([^<]*)</p>\n<div class="stage">', text):
        assert len(re.findall(r"\.(?=\s|$)", about)) == 2


def test_modules_come_after_those_they_import() -> None:
    script = bundle()
    names = re.findall(r"^const (module_\w+) =", script, flags=re.MULTILINE)
    sources = list((Path(module.__file__).parent / "js").iterdir())
    assert len(names) == len(set(names)) == len(sources)
    for position, name in enumerate(names):
        used = re.findall(
            r"= (module_\w+);\n", script.split(f"const {name} =")[1].split("\n})();")[0]
        )
        assert set(used) <= set(names[:position])


def test_what_the_build_cannot_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for source, complaint in (
        ('import * as x from "./y.js";\n', "cannot read 'import"),
        ("export default 3;\n", "cannot read 'export"),
        ('import { a } from "./main.js";\n', "in a circle: main main"),
    ):
        monkeypatch.setattr(module, "_source", lambda name, source=source: source)
        with pytest.raises(ValueError, match=complaint):
            bundle()


def test_the_command_writes_and_opens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    out = tmp_path / "new" / "page.html"
    for answer, words in ((True, "in your browser"), (False, "no browser here")):

        def open_it(url: str, answer: bool = answer) -> bool:
            opened.append(url)
            return answer

        monkeypatch.setattr("webbrowser.open", open_it)
        assert cli.main(["playground", "--out", str(out)]) == 0
        assert words in capsys.readouterr().out
    assert opened == [out.as_uri()] * 2
    assert cli.main(["playground", "--out", str(out), "--no-open"]) == 0
    shown = capsys.readouterr().out
    assert str(out) in shown and "MB" in shown and len(opened) == 2
    assert out.read_text() == build()
    assert list(out.parent.iterdir()) == [out], "no draft is left"


@pytest.mark.parametrize("below", [".", "page.html"])
def test_what_is_in_the_way_is_one_line(
    below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes").mkdir() if below == "." else (tmp_path / "notes").touch()
    out = tmp_path / "notes" / below
    assert cli.main(["playground", "--out", str(out), "--no-open"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "in the way; choose another file with --out." in line
