"""Files are found, fetched and checked."""

from __future__ import annotations

import hashlib
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dcgraph.experiments.engine import datasets
from dcgraph.experiments.engine.datasets import File, locate
from dcgraph.experiments.engine.errors import DataError

CONTENT = b"addition(0,1,9).\n"

FILE = File("sums/list.txt", hashlib.sha256(CONTENT).hexdigest(), ())


def put(folder: Path, content: bytes = CONTENT, name: str = FILE.path) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def complaint(file: File, data_dir: Path | None = None) -> str:
    with pytest.raises(DataError) as raised:
        locate(file, data_dir)
    (line,) = str(raised.value).splitlines()
    return line


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of the user, and no other data."""
    monkeypatch.delenv("DCGRAPH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dcgraph"


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves a folder; of a file named ``cut`` it sends the first half and hangs up."""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path != "/cut":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[: len(CONTENT) // 2])
        return None


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    put(tmp_path / "served", name="whole")
    put(tmp_path / "served", b"something else", name="other")
    handler = partial(QuietHandler, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


# Files


def test_the_order_is_data_dir_then_environment_then_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_cache = put(cache)
    assert locate(FILE) == in_cache
    in_environment = put(tmp_path / "environment")
    monkeypatch.setenv("DCGRAPH_DATA", str(tmp_path / "environment"))
    assert locate(FILE) == in_environment
    given = tmp_path / "given"
    given.mkdir()
    assert locate(FILE, given) == in_environment  # what data_dir lacks may be elsewhere
    in_given = put(given)
    assert locate(FILE, given) == in_given


def test_without_xdg_the_cache_is_in_the_home_folder(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    put(tmp_path / ".cache" / "dcgraph")
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert locate(FILE) == tmp_path / ".cache" / "dcgraph" / FILE.path


def test_an_empty_variable_is_not_the_current_folder(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DCGRAPH_DATA", "")
    assert "is missing" in complaint(FILE)


def test_a_data_dir_that_does_not_exist_is_an_error(tmp_path: Path, cache: Path) -> None:
    put(cache)
    said = complaint(FILE, tmp_path / "nowhere")
    assert said == (
        f"the data folder '{tmp_path / 'nowhere'}' does not exist; create it, or name another one."
    )


def test_a_found_file_with_another_checksum_is_an_error(tmp_path: Path, cache: Path) -> None:
    put(cache)  # the right one further down is no excuse
    wrong = put(tmp_path / "given", b"wrong")
    said = complaint(replace(FILE, urls=("file:///nowhere",)), tmp_path / "given")
    assert said == (
        f"{wrong} has the sha256 checksum {hashlib.sha256(b'wrong').hexdigest()[:12]}... "
        f"instead of {FILE.sha256[:12]}...; delete it, and it is downloaded anew."
    )
    assert complaint(FILE, tmp_path / "given").endswith("...; replace it.")


def test_a_folder_in_the_place_of_the_file_is_an_error(cache: Path) -> None:
    (cache / FILE.path).mkdir(parents=True)
    assert complaint(FILE).startswith(f"cannot read {cache / FILE.path}: ")


def test_absent_and_offline_says_where_it_was_looked_for_and_how_to_get_it(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DCGRAPH_DATA", str(tmp_path))
    places = f"{tmp_path / FILE.path}, {cache / FILE.path}"
    assert complaint(FILE) == (
        f"sums/list.txt is missing: looked at {places}; no download address is known; "
        f"fetch it and put it at {cache / FILE.path}."
    )

    def offline(url: str, timeout: float) -> None:
        raise urllib.error.URLError(OSError(-2, "Name or service not known"))

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    assert complaint(replace(FILE, urls=("https://example.org/list",))) == (
        f"sums/list.txt is missing: looked at {places}; the download failed "
        "(https://example.org/list: Name or service not known); "
        f"fetch it and put it at {cache / FILE.path}."
    )
    assert not cache.exists()


def test_a_download_goes_into_the_cache_and_happens_once(
    tmp_path: Path, cache: Path, server: str
) -> None:
    file = replace(FILE, urls=(f"{server}/absent", f"{server}/other", f"{server}/whole"))
    assert locate(file) == cache / FILE.path
    assert files_below(cache) == [cache / FILE.path]
    assert (cache / FILE.path).read_bytes() == CONTENT
    assert locate(FILE) == cache / FILE.path  # FILE has no address: found, not fetched


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("absent", "HTTP Error 404: File not found"),
        ("other", "has the sha256 checksum"),
        ("cut", "has the sha256 checksum"),
    ],
)
def test_a_failed_download_leaves_nothing_behind(
    cache: Path, server: str, name: str, reason: str
) -> None:
    said = complaint(replace(FILE, urls=(f"{server}/{name}",)))
    assert f"the download failed ({server}/{name}: {reason}" in said
    assert not cache.exists()


def test_a_download_has_a_size_limit(
    cache: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "_LIMIT", len(CONTENT) - 1)
    assert "whole: is too large" in complaint(replace(FILE, urls=(f"{server}/whole",)))


def test_a_file_is_saved_whole_or_not_at_all(
    cache: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(part: Path, content: bytes) -> None:
        part.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert complaint(replace(FILE, urls=(f"{server}/whole",))) == (
        f"cannot write {cache / FILE.path}: the disk is full; "
        "set XDG_CACHE_HOME to a folder that can be written."
    )
    assert list((cache / FILE.path).parent.iterdir()) == []


def test_without_a_home_data_are_found_and_nothing_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.setenv("DCGRAPH_DATA", str(tmp_path))
    assert datasets.cache_folder() is None
    assert "no home folder" in complaint(replace(FILE, urls=("http://127.0.0.1:1/x",)))
    path = put(tmp_path)
    assert locate(FILE) == path
