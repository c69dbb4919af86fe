"""Answers for people, in 80 columns, and for programs: JSON, and lines with tabs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from ..data.graph import INVERSE
from .answerer import GUESS, Answer, Answered, Step, Stop
from .known import MARKS, NEW

_WIDTH = 80
_NAME = 44  # columns for the name of an answer
_DIGITS = 6  # of numbers in JSON


def text(answered: Answered, width: int, calibrated: bool, new: bool = False) -> str:
    """A screen.

    ``width`` is that of the beam search; ``new`` says that only new answers are in it.
    """
    lines = textwrap.wrap(
        f"{answered.source}: {', '.join(answered.path)}", _WIDTH, subsequent_indent="  "
    )
    if answered.hops:
        more = max(map(len, answered.hops))
        kept = f", the best {more}" if more < width else ""
        lines += ["", f"On the way{kept}:"]
    for relation, stops in zip(answered.path, answered.hops, strict=False):
        lines.append(f"  {relation}")
        lines += [
            _row("", stop.probability if calibrated else stop.share, stop.entity, stop.mark)
            for stop in stops
        ]
    count = f"{answered.candidates:,} candidate" + "s" * (answered.candidates != 1)
    head = "New answers" if new else "Answers"
    lines += ["", *_wrapped(f"{head} ({count}; {_known(answered.known)}):")]
    lines.append(_row("", "right" if calibrated else "share", "", ""))
    for rank, one in enumerate(answered.answers, 1):
        said = one.probability if calibrated else one.share
        lines.append(_row(str(rank), said, one.entity, one.mark))
        lines += [f"{'':14}{line}" for line in textwrap.wrap(_way(one), _WIDTH - 14)]
    return "\n".join(line.rstrip() for line in lines)


def legend(calibrated: bool) -> str:
    """What stands in the columns."""
    if calibrated:
        said = (
            "right: how likely a new answer is right, as calibrated on validation; what triples of "
            "a split lead to is marked with it, and needs no probability."
        )
    else:
        said = (
            "share: of what the model believes, not how likely an answer is right. That is "
            "calibrated in training, where there is a validation split, for the default options."
        )
    return "\n".join(_wrapped(said))


def as_json(answered: Answered, calibrated: bool, line: int | None = None) -> str:
    """One line. See docs/asking.md for the fields."""
    found: dict[str, Any] = {} if line is None else {"line": line}
    found |= {
        "source": answered.source,
        "path": answered.path,
        "candidates": answered.candidates,
        "known": {name: answered.known.get(name, 0) for name in MARKS},
        "calibrated": calibrated,
        "hops": [[_fields(stop) for stop in stops] for stops in answered.hops],
        "answers": [
            {"rank": rank} | _fields(one) | {"evidence": [vars(step) for step in one.evidence]}
            for rank, one in enumerate(answered.answers, 1)
        ],
    }
    return dumped(found)


def _fields(stop: Stop | Answer) -> dict[str, Any]:
    return {
        "entity": stop.entity,
        "mark": stop.mark,
        "share": stop.share,
        "probability": stop.probability,
    }


def error_as_json(line: int, error: str) -> str:
    return dumped({"line": line, "error": error})


def dumped(found: Any) -> str:
    """JSON in ASCII, without control characters, which a terminal would take for commands."""
    return json.dumps(_rounded(found), allow_nan=False)


def as_lines(answered: Answered, calibrated: bool) -> Iterable[str]:
    """For each answer: source, path, rank, entity, mark, probability (or share)."""
    for rank, one in enumerate(answered.answers, 1):
        said = one.probability if calibrated else one.share
        number = "" if said is None else f"{said:.{_DIGITS}g}"
        path = ",".join(answered.path)
        yield "\t".join([answered.source, path, str(rank), one.entity, one.mark, number])


def _row(rank: str, said: float | str | None, entity: str, mark: str) -> str:
    number = said if isinstance(said, str) else "" if said is None else per_cent(said)
    name = entity if len(entity) <= _NAME else f"{entity[: _NAME - 3]}..."
    shown = f"in {mark}" if mark and mark != NEW else mark
    return f"  {rank:>4}{number:>6}  {name:<{_NAME}}  {shown}"


def per_cent(share: float) -> str:
    """Never all and never nothing, because nobody knows.

    >>> [per_cent(share) for share in (1.0, 0.994, 0.3449, 0.0149, 0.004)]
    ['>99 %', '99 %', '34 %', '1 %', '<1 %']
    """
    if share >= 0.995:
        return ">99 %"
    return "<1 %" if share < 0.01 else f"{share:.0%}".replace("%", " %")


def _known(known: dict[str, int]) -> str:
    some = [f"{count:,} in {mark}" for mark, count in known.items() if count]
    return f"known: {', '.join(some)}" if some else "none known"


def _way(answer: Answer) -> str:
    """The entities on the way, and the triples that are not of training."""
    *between, _ = answer.evidence
    said = [f"by {', '.join(step.target for step in between)}"] if between else []
    for mark in dict.fromkeys(step.mark for step in answer.evidence):
        if mark == "training" or (mark != GUESS and not between):
            continue
        triples = [_triple(step) for step in answer.evidence if step.mark == mark]
        if between:
            said.append(f"{mark}: {', '.join(triples)}")
    return "; ".join(said)


def _triple(step: Step) -> str:
    """From head to tail."""
    if step.relation.startswith(INVERSE):
        return f"{step.target} {step.relation.removeprefix(INVERSE)} {step.source}"
    return f"{step.source} {step.relation} {step.target}"


def _wrapped(words: str) -> Sequence[str]:
    return textwrap.wrap(words, _WIDTH)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
