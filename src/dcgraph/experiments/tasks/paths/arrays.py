"""Arrays in .npz files, read without numpy, which the library does not need otherwise.

Such a file is a zip archive of .npy files: a header that is a Python literal, then the numbers.
Nothing in it is run.
"""

from __future__ import annotations

import ast
import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ...engine.datasets import DataError

_TYPES = {"|i1": torch.int8, "<i2": torch.int16, "<i4": torch.int32, "<i8": torch.int64}


def read_arrays(path: Path, names: Sequence[str]) -> list[Tensor]:
    """The arrays of these names, whole numbers of up to 64 bits."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [_array(archive.read(f"{name}.npy")) for name in names]
    except KeyError as error:
        needed = ", ".join(names)
        raise DataError(f"{path}: {error.args[0]}; the arrays {needed} are needed.") from None
    except (ValueError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise DataError(f"{path} is damaged or no .npz file ({error}); replace it.") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; replace it.") from error


def _array(content: bytes) -> Tensor:
    """A ValueError says what is wrong."""
    if content[:6] != b"\x93NUMPY" or len(content) < 12:
        raise ValueError("an array does not begin as one")
    start = 10 if content[6] == 1 else 12  # version 1 has two bytes for the length of the header
    size = int.from_bytes(content[8:start], "little")
    try:
        header = ast.literal_eval(content[start : start + size].decode())
        kind, columnwise, shape = header["descr"], header["fortran_order"], header["shape"]
        rows, *others = shape
        count = math.prod(shape)
    except (ValueError, SyntaxError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError("the header of an array is not readable") from error
    if kind not in _TYPES or columnwise:
        raise ValueError(f"an array of type {kind!r} or in column order is not for us")
    raw = bytearray(content[start + size :])
    if len(raw) != count * _TYPES[kind].itemsize:
        raise ValueError("an array has more or fewer numbers than it says")
    if not count:
        return torch.empty(rows, *others, dtype=_TYPES[kind])
    return torch.frombuffer(raw, dtype=_TYPES[kind]).view(rows, *others)
