"""Digits to add: files are found, fetched and checked; images and lists are what they should be."""

from __future__ import annotations

import gzip
import hashlib
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from dcgraph.experiments.engine import datasets
from dcgraph.experiments.engine.datasets import DataError, File, locate
from dcgraph.experiments.tasks.addition import images, lists

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
        f"cannot write {cache / FILE.path}: No space left on device; "
        "set XDG_CACHE_HOME to a folder that can be written."
    )
    assert list((cache / FILE.path).parent.iterdir()) == []


# Images


def idx(*shape: int, content: bytes, kind: int = 8) -> bytes:
    header = bytes((0, 0, kind, len(shape))) + struct.pack(f">{len(shape)}I", *shape)
    return gzip.compress(header + content, mtime=0)


def test_idx_is_read_row_by_row() -> None:
    table = images.read_idx(idx(2, 3, content=bytes(range(6))), "table", 2)
    assert table.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert table.dtype == torch.uint8


@pytest.mark.parametrize(
    ("compressed", "reason"),
    [
        (b"", "does not start like an IDX file"),
        (b"plain text", "is not a whole gzip file"),
        (idx(2, content=b"ab")[:-9], "is not a whole gzip file"),
        (idx(2, content=b"ab")[:12] + b"\xff" * 20, "is not a whole gzip file"),
        (
            gzip.compress(b"\0\0\x08", mtime=0),
            "does not start like an IDX file of bytes in 1 dimensions",
        ),
        (idx(1, 2, content=b"ab"), "does not start like an IDX file"),
        (idx(2, content=b"ab", kind=9), "does not start like an IDX file"),
        (idx(3, content=b"ab"), "announces 3 bytes and holds 2"),
        (idx(1, content=b"ab"), "announces 1 bytes and holds 2"),
        (idx(0, content=b""), "announces 0 bytes and holds 0"),
    ],
)
def test_a_malformed_idx_file_is_an_error(compressed: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=f"^some.gz {reason}.*; fetch it anew[.]$"):
        images.read_idx(compressed, "some.gz", 1)


def test_the_embedded_digits() -> None:
    digits = images.digits()
    assert digits.train.shape == (1300, 8, 8)
    assert digits.test.shape == (497, 8, 8)
    assert digits.train_labels.shape == (1300,)
    assert digits.test_labels.shape == (497,)
    labels = torch.cat([digits.train_labels, digits.test_labels])
    assert labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    pixels = torch.cat([digits.train, digits.test])
    assert [pixels.min().item(), pixels.max().item()] == [0, 16]
    assert digits.train_labels[:30].tolist() == [*range(10)] * 3  # the order of the source
    assert digits.train[0, 0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]


def test_the_embedded_digits_are_readable() -> None:
    """The nearest training image has the same label, far more often than one time in ten."""
    digits = images.digits()
    distances = torch.cdist(digits.test.flatten(1).float(), digits.train.flatten(1).float())
    same = digits.train_labels[distances.argmin(1)] == digits.test_labels
    assert same.double().mean() > 0.9


def test_the_embedded_digits_are_small_and_keep_their_attribution() -> None:
    folder = Path(images.__file__).parent / "embedded"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 100_000
    readme = (folder / "README.md").read_text()
    for needed in ("Alpaydin", "Kaynak", "10.24432/C50P49", "creativecommons.org/licenses/by/4.0"):
        assert needed in readme


def test_the_fingerprint_sees_every_pixel_and_label(monkeypatch: pytest.MonkeyPatch) -> None:
    digits = images.digits()
    assert images.digits().fingerprint == digits.fingerprint
    assert len(digits.fingerprint) == 16
    read = images.read_idx
    for changed in (1, 3):

        def altered(compressed: bytes, name: str, dimensions: int, at: int = changed) -> object:
            content = read(compressed, name, dimensions)
            if dimensions == at:
                content.view(-1)[-1] += 1
            return content

        monkeypatch.setattr(images, "read_idx", altered)
        assert images.digits().fingerprint != digits.fingerprint


@pytest.fixture(scope="module")
def mnist() -> images.Images:
    """MNIST where it is on this machine already; a test does not download."""
    try:
        for file in images.MNIST:
            locate(replace(file, urls=()))
    except DataError as error:
        pytest.skip(str(error))
    return images.mnist()


def test_mnist(mnist: images.Images) -> None:
    assert mnist.train.shape == (60_000, 28, 28)
    assert mnist.test.shape == (10_000, 28, 28)
    assert mnist.train_labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert mnist.test_labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert mnist.train_labels.bincount(minlength=10).sum() == 60_000
    assert [mnist.train.min().item(), mnist.train.max().item()] == [0, 255]
    assert mnist.train.float().mean().item() / 255 == pytest.approx(0.1307, abs=1e-4)  # well known


def test_mnist_files_have_two_addresses_each() -> None:
    for file in images.MNIST:
        assert len(file.urls) == 2
        assert all(url.endswith(f"/{file.path}") for url in file.urls)


# Lists


def listed(folder: Path, content: str | bytes) -> Path:
    path = folder / "list.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_list_is_read(tmp_path: Path) -> None:
    path = listed(
        tmp_path, "\ufeffaddition(0,9,18).\r\n\r\n  addition( 3, 4, 0 ) .\naddition(5,5,7)."
    )
    indices, sums = lists.read_pairs(path, images=10)
    assert indices.tolist() == [[0, 9], [3, 4], [5, 5]]
    assert sums.tolist() == [18, 0, 7]
    assert indices.dtype == sums.dtype == torch.long
    path = listed(tmp_path, "addition(0,1,2,27).\n")
    indices, sums = lists.read_pairs(path, images=3, summands=3)
    assert (indices.tolist(), sums.tolist()) == ([[0, 1, 2]], [27])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("\naddition(1,2).\naddition(1,2,3)", ", line 2: 1 summands, but 2 are needed: "),
        ("addition(1,2,3,4).", ", line 1: 3 summands, but 2 are needed: addition(i1,i2,sum)."),
        ("addition(1,2,3)", ", line 1: 'addition(1,2,3)' is not of the form addition(i1,i2,sum)."),
        ("addition(1 2,3,3).", ", line 1: 'addition(1 2,3,3).' is not of the form"),
        ("addition(-1,2,3).", ", line 1: 'addition(-1,2,3).' is not of the form"),
        ("addition(1,2,3).\n1 2 3", ", line 2: '1 2 3' is not of the form"),
        ("addition(٣,2,3).", ", line 1: 'addition(٣,2,3).' is not of the form"),
        (f"addition({'9' * 5000},2,3).", f", line 1: 'addition({'9' * 31}...' is not of the form"),
        ("addition(1,10,3).", ", line 1: image 10, but there are images 0 to 9 only."),
        (f"addition({'9' * 18},0,3).", f", line 1: image {'9' * 18}, but there are images"),
        ("addition(1,2,19).", ", line 1: the sum is 19, but 2 digits add up to 18."),
        ("", " has no examples; write one addition(i1,i2,sum). per line."),
        ("\n \n", " has no examples; write one"),
        (b"addition(1,2,3).\n\x89PNG\xff", ", line 2: not text; name a list of examples."),
        (b"\0\0\x08\x03", r", line 1: '\x00\x00\x08\x03' is not of the form"),
    ],
)
def test_a_wrong_list_is_an_error_with_file_and_line(
    tmp_path: Path, content: str | bytes, reason: str
) -> None:
    path = listed(tmp_path, content)
    with pytest.raises(DataError) as raised:
        lists.read_pairs(path, images=10)
    (line,) = str(raised.value).splitlines()
    assert line.startswith(f"{path}{reason}")


def test_a_list_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent: No such file or directory; name a list"):
        lists.read_pairs(tmp_path / "absent", images=10)
    with pytest.raises(DataError, match="Is a directory; name a list"):
        lists.read_pairs(tmp_path, images=10)


def test_the_published_pairs_are_those_of_mnist(mnist: images.Images) -> None:
    try:
        paths = [locate(replace(file, urls=())) for file in lists.PAIRS]
    except DataError as error:
        pytest.skip(str(error))
    pairs = lists.published_pairs()
    labels = (mnist.train_labels, mnist.test_labels)
    for part, path, label in zip(pairs, paths, labels, strict=True):
        assert part.flatten().sort().values.equal(torch.arange(len(label)))  # each image once
        assert label[part].sum(1).equal(lists.read_pairs(path, images=len(label))[1])


def test_tuples_use_each_image_once() -> None:
    rows = lists.tuples(100, 3, seed=1)
    assert rows.shape == (33, 3)
    assert len(rows.unique()) == 99
    assert rows.equal(lists.tuples(100, 3, seed=1))
    assert not rows.equal(lists.tuples(100, 3, seed=2))
    assert lists.tuples(4, 4, seed=0).shape == (1, 4)


def test_random_tuples_draw_uniformly_from_the_pool() -> None:
    pool = torch.tensor([3, 5, 8, 13])
    rows = lists.random_tuples(pool, 10_000, 2, seed=1)
    assert rows.shape == (10_000, 2)
    assert rows.equal(lists.random_tuples(pool, 10_000, 2, seed=1))
    assert not rows.equal(lists.random_tuples(pool, 10_000, 2, seed=2))
    counts = torch.stack([(rows == image).sum(0) for image in pool])
    assert counts.sum() == rows.numel()  # nothing but the pool
    assert (counts - 2500).abs().max() < 200  # 4.6 standard deviations of 43
    again = (rows[:, 0] == rows[:, 1]).double().mean()
    assert again.item() == pytest.approx(0.25, abs=0.02)  # with replacement, independent


def test_holdout_splits_the_rows() -> None:
    kept, held = lists.holdout(50, 20, seed=1)
    assert (len(kept), len(held)) == (30, 20)
    for part in (kept, held):
        assert part.equal(part.sort().values)
    assert torch.cat([kept, held]).sort().values.equal(torch.arange(50))
    assert held.equal(lists.holdout(50, 20, seed=1)[1])
    assert not held.equal(lists.holdout(50, 20, seed=2)[1])
    assert [len(part) for part in lists.holdout(5, 0, seed=0)] == [5, 0]
    assert [len(part) for part in lists.holdout(5, 5, seed=0)] == [0, 5]


def test_impossible_draws_are_errors() -> None:
    with pytest.raises(ValueError, match="size=6, but of 5 rows 0 to 5 can be held out"):
        lists.holdout(5, 6, seed=0)
    with pytest.raises(ValueError, match="summands=3, but 2 images give 1 to 2 summands"):
        lists.tuples(2, 3, seed=0)
    with pytest.raises(ValueError, match="pool is empty"):
        lists.random_tuples(torch.tensor([], dtype=torch.long), 1, 2, seed=0)


def test_drawing_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    lists.tuples(10, 2, seed=0)
    lists.random_tuples(torch.arange(10), 5, 2, seed=0)
    lists.holdout(10, 2, seed=0)
    assert torch.get_rng_state().equal(before)
