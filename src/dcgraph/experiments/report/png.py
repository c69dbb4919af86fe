"""Small grey images as data, for a page that needs no other file."""

from __future__ import annotations

import base64
import struct
import zlib

from jaxtyping import Shaped
from torch import Tensor


def data_uri(image: Shaped[Tensor, "height width"]) -> str:
    """A PNG: 0 is white, the image's largest value black."""
    largest = float(image.max()) or 1.0
    grey = (255 - image.double() * (255 / largest)).round().clamp(0, 255).int().tolist()
    height, width = image.shape
    rows = b"".join(b"\0" + bytes(row) for row in grey)  # 0: no filter
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)  # 8 bits, grey
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")
    png = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in chunks)
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
