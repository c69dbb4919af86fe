"""What holds for every figure: the same numbers for a seed, and a picture from the JSON only."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from matplotlib import colors, image

from dcgraph.experiments import figures
from dcgraph.experiments.figures import style


def check_figure(name: str, make: Callable[[int], dict[str, Any]], folder: Path) -> Path:
    """A small version of a figure, made of nothing but its seed; returns the picture."""
    torch.manual_seed(1)
    first = make(0)
    torch.manual_seed(2)
    assert make(0) == first
    assert (first["figure"], first["seed"]) == (name, 0)
    assert make(1) | {"seed": 0} != first
    path = folder / "picture"
    figures.FIGURES[name].draw(json.loads(json.dumps(first, allow_nan=False)), path)
    width, height = png_size(path)
    assert width == 1440  # 7.2 inches at 200 dpi
    assert 400 < height < 1000
    return path


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def check_margin(path: Path) -> None:
    """Nothing is cut off: there is a white margin on all sides."""
    width, height = png_size(path)
    assert width == 1440 and 400 < height < 1000
    ink = torch.tensor(image.imread(path)[..., :3]).amin(-1) < 1
    inside = ink[8:-8, 8:-8].sum()
    assert inside == ink.sum() and inside > 10_000


def wrong_share(path: Path) -> float:
    """The share of the picture in the colour of wrong cells."""
    pixels = torch.tensor(image.imread(path)[..., :3])
    colour = torch.tensor(colors.to_rgb(style.WRONG))
    return ((pixels - colour).abs().amax(-1) < 0.01).double().mean().item()


def check_from_records(name: str, results: Path, folder: Path) -> dict[str, Any]:
    """A figure of records is drawn from the JSON only; returns what is in it."""
    picture, data = figures.make(name, folder, results=results)
    first = picture.read_bytes()
    width, height = png_size(picture)
    assert width == 1440 and 700 < height < 1400 and len(first) > 10_000
    numbers: dict[str, Any] = json.loads(data.read_text())
    figures.FIGURES[name].draw(numbers, picture)
    assert picture.read_bytes() == first
    return numbers
