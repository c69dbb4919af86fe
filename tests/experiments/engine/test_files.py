"""Files are written whole or not at all, on a full disk too, and nobody can plant a link."""

from __future__ import annotations

import gzip
import os
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dcgraph.experiments.engine import checkpoint, datasets
from dcgraph.experiments.engine.errors import CheckpointError, DataError
from dcgraph.experiments.engine.files import inflated, write_atomically, write_json
from dcgraph.experiments.engine.models import load_model, save_model
from dcgraph.experiments.engine.records import write_probes, write_record
from dcgraph.experiments.tasks.listops.data import expressions
from dcgraph.experiments.tasks.listops.reading import write_page
from dcgraph.experiments.tasks.paths.data import disk_cached
from dcgraph.experiments.tasks.paths.data.files import write_lines
from full_disk import ROOM, full_disk
from made_up_records import RECORD
from parity import QUICK, TASK

NUMBERS = torch.randn(ROOM)


def save_a_model(path: Path) -> None:
    wide = TASK.settings(width=64)  # type: ignore[call-arg]
    save_model(path, TASK, wide, TASK.model(wide), 0.5)  # type: ignore[arg-type]


def many_expressions(path: Path) -> None:
    expressions.write(path, [expressions.parse("[MAX 1 2 ]")] * ROOM)


WRITERS: dict[str, tuple[Callable[[Path], object], type[Exception]]] = {
    "checkpoint": (lambda path: checkpoint.save(path, {"x": NUMBERS}), CheckpointError),
    "model": (save_a_model, OSError),
    "json": (lambda path: write_json(path, NUMBERS.tolist()), OSError),
    "probes": (
        lambda path: write_probes(path, {0: [{"x": one} for one in NUMBERS.tolist()]}),
        OSError,
    ),
    "download": (lambda path: datasets._save(os.urandom(3 * ROOM), path), DataError),
    "expressions": (many_expressions, DataError),
    "record": (
        lambda path: write_record(path, replace(RECORD, hardware="x" * 3 * ROOM)),
        OSError,
    ),
    "page of readings": (
        lambda path: write_page(path, [], "x" * 3 * ROOM),
        OSError,
    ),
    "triples": (lambda path: write_lines(path, map(str, NUMBERS.tolist())), DataError),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_said_and_leaves_the_old_file(name: str, tmp_path: Path) -> None:
    write, error = WRITERS[name]
    with full_disk(tmp_path) as (folder, reason):
        path = folder / "file.json"
        path.write_text("old")
        with pytest.raises(error) as caught:
            write(path)
        assert reason in str(caught.value) and "\n" not in str(caught.value)
        assert [p.name for p in folder.iterdir()] == ["file.json"] and path.read_text() == "old"


def test_a_full_disk_of_the_cache_only_costs_time(tmp_path: Path) -> None:
    with full_disk(tmp_path) as (folder, _):
        for _ in range(2):
            assert torch.equal(disk_cached("x", lambda: {"x": NUMBERS}, folder)["x"], NUMBERS)
        assert not list(folder.iterdir())


def test_a_draft_is_where_only_this_user_can_put_anything(tmp_path: Path) -> None:
    seen: list[Path] = []

    def write(draft: Path) -> None:
        seen.append(draft)
        assert draft.parent.parent == tmp_path, "on the same disk"
        assert draft.parent.stat().st_mode & 0o777 == 0o700 and not list(draft.parent.iterdir())
        draft.write_text("new")

    before = os.umask(0o022)
    try:
        for _ in range(2):
            write_atomically(tmp_path / "file", write)
    finally:
        os.umask(before)
    assert seen[0] != seen[1], "a name that cannot be foreseen"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644, "others may read the file"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_what_cannot_be_written_is_named_and_no_draft(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder") as caught:
        write_json(tmp_path / "folder", 1)
    assert caught.value.filename == str(tmp_path / "folder")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write_json(tmp_path / "file" / "below", 1)
    os.mkfifo(tmp_path / "pipe")
    write_json(tmp_path / "pipe", 1)  # replaced, and not waited for
    assert (tmp_path / "pipe").read_text() == "1\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder", "pipe"]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "file").symlink_to(precious)
    write_json(tmp_path / "file", 1)
    assert precious.read_text() == "precious"
    assert not (tmp_path / "file").is_symlink() and (tmp_path / "file").read_text() == "1\n"


def test_old_drafts_are_removed_and_those_at_work_are_not(tmp_path: Path) -> None:
    old, new, planted = (tmp_path / f".dcgraph-draft-{n}" for n in ("old", "new", "planted"))
    elsewhere = tmp_path / "elsewhere"
    for folder in (old, new, elsewhere):
        folder.mkdir()
        (folder / "draft").write_text("half")
    planted.symlink_to(elsewhere)
    yesterday = time.time() - 2 * 24 * 3600
    os.utime(old, (yesterday, yesterday))
    os.utime(planted, (yesterday, yesterday), follow_symlinks=False)
    write_json(tmp_path / "file", 1)
    assert not old.exists() and (new / "draft").exists() and (elsewhere / "draft").exists()


def test_a_failing_writer_leaves_nothing(tmp_path: Path) -> None:
    def fail(draft: Path) -> None:
        draft.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", fail)
    assert not list(tmp_path.iterdir())


def test_what_inflates_to_fill_the_memory_is_refused() -> None:
    text = b"a\tr\tb\n" * 10_000  # as regular as text gets: a 350th
    for packed in (gzip.compress(text[:70]), gzip.compress(text), b""):
        assert inflated(packed) == (gzip.decompress(packed) if packed else b"")
    two = gzip.compress(b"one ") + gzip.compress(b"two") + bytes(3)
    assert inflated(two) == b"one two"
    bomb = gzip.compress(bytes(1 << 20)) * 100
    with pytest.raises(OSError, match="it inflates to more than 200 times its size"):
        inflated(bomb)
    with pytest.raises(EOFError, match="ends too early"):
        inflated(two[:-8])
    with pytest.raises(zlib.error):
        inflated(two[:-3] + b"more")


def test_equal_models_are_equal_files(tmp_path: Path) -> None:
    """safetensors by itself writes its notes in any order."""
    torch.manual_seed(0)
    model = TASK.model(QUICK)
    contents = set()
    for number in range(8):
        save_model(tmp_path / str(number), TASK, QUICK, model, 0.5, {"a": 1.0})
        contents.add((tmp_path / str(number)).read_bytes())
    assert len(contents) == 1
    loaded, settings = load_model(tmp_path / "0", TASK)
    assert settings == QUICK
    for own, same in zip(loaded.parameters(), model.parameters(), strict=True):
        assert torch.equal(own, same)
