"""What ``dcgraph predict paths`` does: one query for people, many for programs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from ....engine.errors import DataError
from ..data.graph import INVERSE, Queries, near
from . import screens
from .answerer import Answered, Answerer

LONGEST = 100
"""Relations of a path, at most: each takes memory for all entities."""

_LINES = 1000  # that are answered together
_SHOWN = 3  # entities on the way, after each relation
_GUESSES = 20  # bad lines for which the nearest names are looked up: of many names that takes long

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Predictor:
    """Asks an answerer in words."""

    answerer: Answerer
    top: int
    json: bool = False
    new: bool = False

    @property
    def calibrated(self) -> bool:
        found = self.answerer.calibration
        return found is not None and bool(found.of)

    def one(self, entity: str, path: str) -> Iterator[str]:
        (answered,) = self._answers([self.query(entity, path)])
        if self.json:
            yield screens.as_json(answered, self.calibrated)
            return
        yield screens.text(answered, self.answerer.width, self.calibrated, self.new)
        yield f"\n{screens.legend(self.calibrated)}"

    def many(self, lines: Iterable[bytes]) -> Iterator[str]:
        """Answers in the order of the lines; a bad one does not lose the others."""
        bad = asked = 0
        numbered = enumerate(lines, 1)
        while part := list(islice(numbered, _LINES)):
            wanted: dict[int, tuple[int, list[int]]] = {}
            failed: dict[int, str] = {}
            for number, raw in part:
                if not raw.strip():
                    continue
                asked += 1
                try:
                    wanted[number] = self._parsed(raw, guess=bad < _GUESSES)
                except DataError as error:
                    bad += 1
                    failed[number] = str(error)
            answers = self._answered(wanted)
            for number, _ in part:
                if number in answers:
                    if self.json:
                        yield screens.as_json(answers[number], self.calibrated, number)
                    else:
                        yield "\n".join(screens.as_lines(answers[number], self.calibrated))
                elif number in failed and self.json:
                    yield screens.error_as_json(number, failed[number])
                elif number in failed:
                    _log.error("line %d: %s", number, failed[number])
        if not asked:
            raise DataError("there are no queries; write a source, a tab and relations per line.")
        if bad:
            raise DataError(f"{bad:,} of {asked:,} queries could not be read; see above.")

    def _parsed(self, raw: bytes, guess: bool) -> tuple[int, list[int]]:
        try:
            line = raw.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            raise DataError("not text in UTF-8.") from None
        source, tab, rest = line.partition("\t")
        if not tab:
            raise DataError("no tab; write a source, a tab and relations between commas.")
        return self.query(source, rest.partition("\t")[0], guess)

    def _answered(self, wanted: Mapping[int, tuple[int, list[int]]]) -> dict[int, Answered]:
        """Queries of one length together; by the number of the line."""
        lengths: dict[int, list[int]] = {}
        for number, (_, path) in wanted.items():
            lengths.setdefault(len(path), []).append(number)
        found: dict[int, Answered] = {}
        for numbers in lengths.values():
            answers = self._answers([wanted[number] for number in numbers])
            found |= dict(zip(numbers, answers, strict=True))
        return found

    def _answers(self, queries: Iterable[tuple[int, list[int]]]) -> list[Answered]:
        return self.answerer.answer(joined(queries), self.top, _SHOWN, self.new)

    def query(self, entity: str, path: str, guess: bool = True) -> tuple[int, list[int]]:
        """Numbers of what is named; a DataError for unknown names says which are near."""
        graph = self.answerer.graph
        source = number_of(entity, self.answerer.entity_numbers, "entity", guess)
        names = [word.strip() for word in path.split(",")]
        if len(names) > LONGEST:
            raise DataError(f"a path of {len(names):,} relations, but there are {LONGEST} at most.")
        known = self.answerer.relation_numbers
        for name in names:
            if name not in known:
                some = graph.relation_names if name.startswith(INVERSE) else graph.relations
                hint = near(name, some) if guess else "it is not in the graph."
                raise DataError(f"unknown relation {name!r}; {hint}")
        return source, [known[name] for name in names]


def number_of(name: str, known: Mapping[str, int], kind: str, guess: bool = True) -> int:
    if name not in known:
        hint = near(name, tuple(known)) if guess else "it is not in the graph."
        raise DataError(f"unknown {kind} {name!r}; {hint}")
    return known[name]


def joined(queries: Iterable[tuple[int, list[int]]]) -> Queries:
    sources, paths = zip(*queries, strict=True)
    source = torch.tensor(sources, dtype=torch.int32)
    return Queries(source, torch.tensor(paths, dtype=torch.int32), source)


def lines_of(file: Path) -> Iterator[bytes]:
    """Of a file, or of stdin as they come."""
    if str(file) == "-":
        yield from sys.stdin.buffer
        return
    try:
        with file.open("rb") as opened:
            yield from opened
    except OSError as error:
        raise DataError(
            f"cannot read {str(file)!r}: {error.strerror}; name a file, or -."
        ) from None


def relations_at(answerer: Answerer, entity: str) -> str:
    """What can be asked about an entity: the relations that lead on from it, with an example."""
    graph, known = answerer.graph, answerer.known.everything
    number = number_of(entity, answerer.entity_numbers, "entity")
    lines = [f"Relations that are known to lead on from {entity}, and where to:"]
    for step in range(int(known.first[number]), int(known.first[number + 1])):
        ends = known.ends.values[known.ends.offsets[step] : known.ends.offsets[step + 1]].tolist()
        relation = graph.relation_names[int(known.steps[step]) % known.relations]
        rest = f" and {len(ends) - 1:,} more" if len(ends) > 1 else ""
        lines.append(f"  {relation:<28}  {graph.entities[ends[0]]}{rest}")
    if len(lines) == 1:
        lines = [f"No triple has {entity}; any relation can be asked, and all answers are new."]
    return "\n".join(lines)
