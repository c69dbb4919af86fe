"""Data files: found where the user keeps them, or downloaded once into the user's cache.

A file is known by its checksum, so a run cannot silently use other data than it says.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from .errors import DataError
from .files import read_bytes, write_atomically

_TIMEOUT = 30.0  # seconds without a byte
_LIMIT = 1 << 25  # bytes; no file is close to it, so more is the wrong file


@dataclass(frozen=True)
class File:
    """A published file: its path below any data folder, its checksum, where it can be had."""

    path: str
    sha256: str
    urls: tuple[str, ...]


def locate(file: File, data_dir: Path | None = None) -> Path:
    """Where the file is, with its checksum verified; it is downloaded where it is nowhere.

    Looked for in this order: ``data_dir``, the folder that the environment variable DCGRAPH_DATA
    names, the user's cache folder (``$XDG_CACHE_HOME`` or ``~/.cache``, then ``dcgraph``). A
    download goes into the cache folder.
    """
    if data_dir is not None and not data_dir.is_dir():
        raise DataError(
            f"the data folder {str(data_dir)!r} does not exist; create it, or name another one."
        )
    folders = [] if data_dir is None else [data_dir]
    if named := os.environ.get("DCGRAPH_DATA"):
        folders.append(Path(named))
    if (cache := cache_folder()) is not None:
        folders.append(cache)
    places = [folder / file.path for folder in folders]
    for place in places:
        try:
            content = read_bytes(place, _LIMIT)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise DataError(
                f"cannot read {place}: {_reason(error)}; make it a readable file, or delete it."
            ) from error
        if complaint := _mismatch(content, file):
            remedy = "delete it, and it is downloaded anew" if file.urls else "replace it"
            raise DataError(f"{place} {complaint}; {remedy}.")
        return place
    if cache is None:
        raise DataError(
            f"{file.path} is missing, and this user has no home folder to download it to; set "
            "DCGRAPH_DATA to the folder that has it, or XDG_CACHE_HOME to one for downloads."
        )
    _save(_download(file, places), places[-1])
    return places[-1]


def cache_folder() -> Path | None:
    """The user's cache folder: ``$XDG_CACHE_HOME`` or ``~/.cache``, then ``dcgraph``.

    None for a user without a home, as in some containers.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))  # by its standard, absolute or ignored
    if named.is_absolute():
        return named / "dcgraph"
    try:
        return Path.home() / ".cache" / "dcgraph"
    except RuntimeError:
        return None


def _mismatch(content: bytes, file: File) -> str:
    """What is wrong with the content, as the end of a sentence; empty where it is right."""
    found = hashlib.sha256(content).hexdigest()
    if found == file.sha256:
        return ""
    return f"has the sha256 checksum {found[:12]}... instead of {file.sha256[:12]}..."


def _download(file: File, places: list[Path]) -> bytes:
    """The content from the first address that has it; ``places`` are for the complaint."""
    failures = []
    for url in file.urls:
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
                content: bytes = response.read(_LIMIT + 1)
        except (OSError, http.client.HTTPException) as error:
            failures.append(f"{url}: {_reason(error)}")
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # it is the server's answer too, with an open connection
            continue
        complaint = "is too large" if len(content) > _LIMIT else _mismatch(content, file)
        if not complaint:
            return content
        failures.append(f"{url}: {complaint}")
    looked = ", ".join(map(str, places))
    why = (
        f"the download failed ({'; '.join(failures)})"
        if failures
        else "no download address is known"
    )
    raise DataError(
        f"{file.path} is missing: looked at {looked}; {why}; fetch it and put it at {places[-1]}."
    )


def _save(content: bytes, target: Path) -> None:
    """All of the file or nothing, also when two processes save it at the same time."""
    try:
        write_atomically(target, lambda draft: draft.write_bytes(content))
    except OSError as error:
        raise DataError(
            f"cannot write {target}: {_reason(error)}; "
            "set XDG_CACHE_HOME to a folder that can be written."
        ) from error


def _reason(error: Exception) -> str:
    """An error in one line, without the path that the sentence around it has already."""
    inner = getattr(error, "reason", None)
    text = getattr(inner, "strerror", None) or getattr(error, "strerror", None) or str(error)
    return " ".join(str(text).split()) or type(error).__name__
