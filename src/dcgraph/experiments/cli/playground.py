"""``dcgraph playground``: the page that computes in the browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path

from ..engine.files import write_atomically
from ..playground.build import build
from .parsing import CommandError


def playground(*, out: Path = Path("playground.html"), no_open: bool = False) -> None:
    """Write a page that computes with the trained models, and open it.

    Samples of a discrete step, the gradient along a chain, drawn digits,
    typed formulas and paths through a graph: computed in the browser.
    The page is one file and needs neither a server nor a network.

    Args:
        out: the file to write.
        no_open: only write the file.
    """
    print("Writing a page with the models of the package in it ...", flush=True)
    content = build().encode()
    try:
        write_atomically(out, lambda draft: draft.write_bytes(content))
    except OSError as error:
        blocked = isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError)
        reason = "a file or folder is in the way" if blocked else error.strerror or error
        raise CommandError(
            f"cannot write {str(out)!r}: {reason}; choose another file with --out."
        ) from error
    print(f"Wrote {out}, {len(content) / 1e6:.1f} MB. It is one file: keep it, or hand it on.")
    if no_open:
        print(f"Look: open {out} in a browser.", flush=True)
    elif webbrowser.open(out.resolve().as_uri()):
        print("Opened it in your browser.", flush=True)
    else:
        print(f"There is no browser here that could be started: open {out} yourself.", flush=True)
