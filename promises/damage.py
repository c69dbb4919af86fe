"""Damage: valid texts, files and nested values with something wrong in them, from a seed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 255, 256, 2**31 - 1, 2**31, -(2**31), 2**32, 2**63 - 1, 2**63, 2**64, 10**30),
    *(0.0, -0.0, 0.5, 1e-320, 1e-9, 1e9, 1e20, 1.7e308, -1e308, float("inf"), float("nan")),
)
TEXTS = (
    *("", " ", "\t", "\n", "\r\n", "\0", "\x1b[2J\x1b[31m", "\u202eabc", "\u2028", "\ufeff", "ä"),
    *("😀", "../../escaped", "/tmp/escaped", "..", ".", "a/b", "~", "$HOME", "C:\\x", "con", "-"),
    *(
        "--help",
        "**",
        "**r0",
        ",",
        ",,",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "1e400",
        "1_000",
        "٣",
        "0x10",
    ),
    *("9" * 5000, "x" * 300, "x" * 70_000, "true", "None", "%s%n", "{0}", "'; DROP", "[MAX", "]"),
    "\ud800",
)
VALUES: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"": 0}, *NUMBERS, *TEXTS)


class Damage:
    """A source of damage; equal seeds do the same."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)

    def choice(self, options: Sequence[Any]) -> Any:
        return self.rng.choice(options)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def times(self) -> int:
        """How much is damaged at once: mostly one thing."""
        return self.rng.choice((1, 1, 1, 2, 5))

    def binary(self, content: bytes) -> bytes:
        """Flipped, cut, repeated, removed and inserted bytes."""
        data = bytearray(content)
        for _ in range(self.times()):
            place, length = self.rng.randrange(len(data) + 1), self.rng.choice((1, 1, 2, 4, 8, 64))
            match self.rng.randrange(7):
                case 0 if data:
                    data[min(place, len(data) - 1)] ^= 1 << self.rng.randrange(8)
                case 1:
                    del data[place:]
                case 2:
                    del data[place : place + length]
                case 3:
                    data[place:place] = data[place : place + length] * self.choice((1, 2, 50))
                case 4:
                    data[place:place] = self.rng.randbytes(length)
                case 5:
                    data[place : place + length] = self.choice((b"\0", b"\xff", b"\x7f")) * length
                case _:
                    number = self.choice((0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1))
                    order = self.choice(("little", "big"))
                    data[place : place + 8] = number.to_bytes(8, order)
        return bytes(data)

    def text(self, content: str) -> str:
        """Damaged lines and words of a text."""
        for _ in range(self.times()):
            content = self._text(content)
        return content

    def _text(self, content: str) -> str:
        place = self.rng.randrange(len(content) + 1)
        match self.rng.randrange(8):
            case 0:
                return content[:place] + self.rng.choice(TEXTS) + content[place:]
            case 1:
                return content[:place] + content[place + self.rng.choice((1, 2, 8)) :]
            case 2:
                return content[:place]
            case 3:
                separator = self.rng.choice(("\n", "\t", ",", " ", "=", ".", "-"))
                words = content.split(separator)
                words[self.rng.randrange(len(words))] = self.choice((*TEXTS, *map(str, NUMBERS)))
                return separator.join(words)
            case 4:
                lines = content.split("\n")
                lines.insert(self.rng.randrange(len(lines) + 1), self.rng.choice(lines))
                return "\n".join(lines)
            case 5:
                lines = content.split("\n")
                self.rng.shuffle(lines)
                return "\n".join(lines)
            case 6:
                old, new = self.rng.choice(
                    (("\n", "\r\n"), ("\t", " "), ("\n", "\r"), ("\t", "\t\t"))
                )
                return content.replace(old, new)
            case _:
                letters = "".join(map(chr, self.rng.choices(range(0xFFF), k=5)))
                return content[:place] + letters + content[place:]

    def file(self, content: str) -> bytes:
        """Of a text file: its words, or its bytes."""
        if self.chance(0.3):
            return self.binary(content.encode())
        encoding = self.choice(("utf-8",) * 6 + ("utf-8-sig", "utf-16", "latin-1"))
        return self.text(content).encode(
            encoding, "replace" if encoding != "utf-8" else "surrogatepass"
        )

    def value(self, content: Any) -> Any:
        """Nested lists and dicts with other entries, fewer or more of them."""
        content = copy.deepcopy(content)
        for _ in range(self.times()):
            content = self._value(content)
        return content

    def _value(self, content: Any) -> Any:
        if not isinstance(content, dict | list) or not content or self.chance(0.1):
            return self.other(content)
        keys = list(content) if isinstance(content, dict) else list(range(len(content)))
        key = self.rng.choice(keys)
        if self.chance(0.7):
            content[key] = self._value(content[key])
        elif self.chance(0.4):
            del content[key]
        elif isinstance(content, dict):
            content[self.choice(("", "x", "__class__", "seed", "\x1b[2J"))] = self.choice(VALUES)
        else:
            content.insert(self.rng.randrange(len(content) + 1), self.choice(VALUES))
        return content

    def other(self, value: Any) -> Any:
        """Something else, often of the same type."""
        if isinstance(value, bool) or self.chance(0.3):
            return self.choice(VALUES)
        if isinstance(value, int | float):
            return self.choice((*NUMBERS, value + 1, -value, str(value), [value]))
        if isinstance(value, str):
            return self.choice((*TEXTS, value + "x", value[:-1], self._text(value)))
        return self.choice((*VALUES, [value], _deep(value)))

    def json(self, content: Any) -> bytes:
        """A file of JSON with other values, or with other bytes."""
        if self.chance(0.25):
            return self.file(json.dumps(content))
        if self.chance(0.02):
            return b"[" * 100_000
        return json.dumps(self.value(content)).encode()


def _deep(value: Any) -> Any:
    for _ in range(200):
        value = [value]
    return value
