"""From the sources of the page and the models of the package to one HTML file.

Nothing here needs torch, Node.js or a network, and the same sources give the same bytes.
"""

from __future__ import annotations

import base64
import json
import lzma
import re
from importlib.resources import files
from itertools import accumulate
from typing import Any

LARGEST = 3_000_000
"""Bytes that the page may have."""

_TASKS = "dcgraph.experiments.tasks"
_SHIPPED = ("addition", "listops", "paths")
_START = "main"
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w-]+)\.js";\n', flags=re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:function|class|const) (\w+))", flags=re.MULTILINE)
_PLACE = re.compile(r"\{\{ (\w+) \}\}")


def build() -> str:
    """The page."""
    sources = files(__package__)
    parts = {
        "style": (sources / "style.css").read_text(encoding="utf-8"),
        "data": "\n".join(_data(name, content) for name, content in _shipped().items()),
        "script": bundle(),
    }
    template = (sources / "page.html").read_text(encoding="utf-8")
    return _PLACE.sub(lambda place: parts[place[1]], template)


def bundle() -> str:
    """All modules as one script: each in a function of its own, after those that it imports.

    A browser does not let a page that was opened as a file import others.
    """
    return "\n".join(_wrapped(name) for name in _order(_START, ()))


def _order(name: str, above: tuple[str, ...]) -> list[str]:
    """A module after those that it imports."""
    if name in above:
        raise ValueError(f"modules import each other in a circle: {' '.join([*above, name])}.")
    order: list[str] = []
    for _, imported in _IMPORT.findall(_source(name)):
        order += _order(imported, (*above, name))
    return list(dict.fromkeys([*order, name]))


def _wrapped(name: str) -> str:
    source = _source(name)
    exported = _EXPORT.findall(source)
    body = _EXPORT.sub("", _IMPORT.sub(_taken, source))
    if left := re.search(r"^(import|export)\b.*", body, flags=re.MULTILINE):
        raise ValueError(f"{name}.js: the build cannot read {left[0]!r}.")
    given = f"return {{ {', '.join(exported)} }};\n" if exported else ""
    return f"const {_variable(name)} = (() => {{\n{body}{given}}})();"


def _taken(statement: re.Match[str]) -> str:
    names = " ".join(statement[1].split()).rstrip(",")
    return f"const {{ {names} }} = {_variable(statement[2])};\n"


def _variable(module: str) -> str:
    return "module_" + module.replace("-", "_")


def _source(name: str) -> str:
    return (files(__package__) / "js" / f"{name}.js").read_text(encoding="utf-8")


def _shipped() -> dict[str, dict[str, Any]]:
    """By task what the page has of it."""
    addition, listops, paths = (files(f"{_TASKS}.{task}") for task in _SHIPPED)
    symbols = json.loads((addition / "best.symbols.json").read_text(encoding="utf-8"))
    return {
        "addition": {"weights": _weights(addition / "best.safetensors"), "use": symbols["use"]},
        "listops": {"weights": _weights(listops / "best.safetensors")},
        "paths": _paths(paths / "umls.safetensors"),
    }


def _paths(path: Any) -> dict[str, Any]:
    """A model of path queries, the graph that it carries, and how it decodes."""
    notes = _header(path.read_bytes())[0]["__metadata__"]
    numbers = json.loads(notes["calibration"])
    calibration: dict[str, list[float]] = {}
    for name in ("share", "unknown", "constant"):
        for key, value in numbers.items():
            if found := re.fullmatch(rf"answers of length (\d+), {name}", key):
                calibration.setdefault(found[1], []).append(value)
    return {
        "weights": _weights(path),
        "graph": _graph(_bytes(path, "dcgraph.carried")),
        "beam": json.loads(notes["settings"])["beam"],
        "temperature": numbers["inverse temperature"],
        "calibration": calibration,
    }


def _graph(packed: bytes) -> dict[str, Any]:
    """Names and triples, as ``tasks/paths/data/packing.py`` packs them."""
    content = lzma.decompress(packed)
    begin = 4 + int.from_bytes(content[:4], "little")
    names = json.loads(content[4:begin])
    triples = {}
    for split, size in names["triples"].items():
        columns = []
        for _ in range(3):
            planes = [content[begin + k * size : begin + (k + 1) * size] for k in range(4)]
            numbers = zip(*planes, strict=True)
            columns.append([int.from_bytes(number, "little") for number in numbers])
            begin += 4 * size
        heads = accumulate(columns[0])  # stored as differences
        triples[split] = list(zip(heads, *columns[1:], strict=True))
    return {"entities": names["entities"], "relations": names["relations"], "triples": triples}


def _weights(path: Any) -> dict[str, dict[str, Any]]:
    """The float32 tensors of a safetensors file, their bytes in base64."""
    header, _ = _header(path.read_bytes())
    return {
        name: {
            "shape": header[name]["shape"],
            "data": base64.b64encode(_bytes(path, name)).decode(),
        }
        for name in sorted(header.keys() - {"__metadata__"})
        if header[name]["dtype"] == "F32"
    }


def _bytes(path: Any, name: str) -> bytes:
    content: bytes = path.read_bytes()
    header, begin = _header(content)
    first, last = (begin + offset for offset in header[name]["data_offsets"])
    return content[first:last]


def _header(content: bytes) -> tuple[dict[str, Any], int]:
    """What is in a safetensors file, and where its numbers begin.

    The format is the length of a header, the header in JSON, and the numbers.
    """
    begin = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:begin]), begin


def _data(name: str, content: dict[str, Any]) -> str:
    text = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="data-{name}">{text}</script>'
