"""From the sources of the page and the models of the package to one HTML file.

Nothing here needs torch, Node.js or a network, and the same sources give the same bytes.
"""

from __future__ import annotations

import base64
import json
import re
from importlib.resources import files
from typing import Any

LARGEST = 3_000_000
"""Bytes that the page may have."""

_TASKS = "dcgraph.experiments.tasks"
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
    addition, listops = (files(f"{_TASKS}.{task}") for task in ("addition", "listops"))
    symbols = json.loads((addition / "best.symbols.json").read_text(encoding="utf-8"))
    return {
        "addition": {"weights": _weights(addition / "best.safetensors"), "use": symbols["use"]},
        "listops": {"weights": _weights(listops / "best.safetensors")},
    }


def _weights(path: Any) -> dict[str, dict[str, Any]]:
    """The tensors of a safetensors file, float32, their bytes in base64.

    The format is the length of a header, the header in JSON, and the numbers.
    """
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    weights = {}
    for name in sorted(header.keys() - {"__metadata__"}):
        if header[name]["dtype"] != "F32":
            raise ValueError(f"{path}: {name} is {header[name]['dtype']}; the page reads F32.")
        first, last = (begin + offset for offset in header[name]["data_offsets"])
        data = base64.b64encode(content[first:last]).decode()
        weights[name] = {"shape": header[name]["shape"], "data": data}
    return weights


def _data(name: str, content: dict[str, Any]) -> str:
    text = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="data-{name}">{text}</script>'
