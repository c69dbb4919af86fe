"""The page of a search: its history, the value by setting, what matters, and the best trials."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
from markupsafe import Markup
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from ..engine.studies import about_of, latest, ranked
from .charts import Dot, Number, Point, number, scatter_chart
from .page import write_page

_SHOWN = 15  # of the best trials
_COLUMNS = 7  # of their table
_FEW, _BEST = 20, 5  # trials below which nothing is said of importance; those that are the best


def write_search_report(path: Path, study: optuna.Study, commands: Sequence[str]) -> None:
    """Write the page of a study, finished or not.

    Args:
        path: the file.
        study: what :func:`~dcgraph.experiments.engine.search.search` works on.
        commands: how to go on, and how to train the best settings.
    """
    trials, about = latest(study), about_of(study)
    measured = [(k, one) for k, one in enumerate(trials) if one.value is not None]
    best = ranked(trials)
    metric = about.get("metric", "value")
    importance = importance_of(study)
    names = list(dict.fromkeys(name for _, one in measured for name in one.distributions))
    first = [name for name, _ in importance]  # those that matter most
    names.sort(key=lambda name: first.index(name) if name in first else len(first))
    write_page(
        path,
        "search.html",
        {
            "title": f"dcgraph search: {study.study_name}",
            "facts": _facts(trials, about),
            "value": _value_in_words(about, metric),
            "history": _history(measured, best, metric),
            "table": _table(best, names, metric),
            "charts": [_by_setting(name, measured, best, metric) for name in names],
            "importance": [(name, f"{100 * share:.0f} %") for name, share in importance],
            "impossible": [
                f"Trial {k}: {one.user_attrs['impossible']}"
                for k, one in enumerate(trials)
                if "impossible" in one.user_attrs
            ],
            "fixed": [*about.get("settings", {}).items(), *_terms(about)],
            "commands": commands,
            "made": f"{datetime.now():%Y-%m-%d %H:%M}",
        },
    )


def importance_of(study: optuna.Study) -> list[tuple[str, float]]:
    """Shares by setting, the largest first; empty for a few trials, or if all settings were one."""
    complete = sum(trial.state == TrialState.COMPLETE for trial in latest(study))
    if complete < _FEW:
        return []
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(
        target_quantile=max(0.1, _BEST / complete)
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is experimental, or without any effect
            shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
    except (ValueError, RuntimeError):
        return []
    return list(shares.items())


def _facts(trials: Sequence[FrozenTrial], about: Mapping[str, Any]) -> list[str]:
    states = [trial.state for trial in trials]
    pruned, running = states.count(TrialState.PRUNED), states.count(TrialState.RUNNING)
    begun = [t.datetime_start for t in trials if t.datetime_start]
    ended = [t.datetime_complete for t in trials if t.datetime_complete]
    facts = [f"task {about.get('task', '?')}", f"{len(trials)} trials", f"{pruned} pruned"]
    if running:
        facts.append(f"{running} running")
    if begun and ended:
        minutes = (max(ended) - min(begun)).total_seconds() / 60
        facts.append(f"{minutes:.1f} min from the first to the last")
    return facts


def _value_in_words(about: Mapping[str, Any], metric: str) -> str:
    seeds = about.get("seeds", 1)
    mean = f", the mean over {seeds} seeds" if seeds > 1 else ""
    return f"{metric} on the validation set, the best of its evaluations{mean}"


def _terms(about: Mapping[str, Any]) -> list[tuple[str, Any]]:
    names = ("seeds", "sampler", "pruner", "data")
    return [
        ("data, fingerprint" if name == "data" else f"{name} of the search", about[name])
        for name in names
        if name in about
    ]


def _history(
    measured: Sequence[tuple[int, FrozenTrial]],
    best: Sequence[tuple[int, FrozenTrial]],
    metric: str,
) -> dict[str, Any] | None:
    """Value by number, and the best so far."""
    if not measured:
        return None
    line: list[Point] = []
    so_far = None
    for k, trial in measured:
        if trial.state == TrialState.COMPLETE and (so_far is None or _value(trial) > so_far):
            if so_far is not None:
                line.append((k, so_far))
            so_far = _value(trial)
            line.append((k, so_far))
    if so_far is not None:
        line.append((measured[-1][0], so_far))
    chart = scatter_chart(
        [_dot(k, k, trial, best) for k, trial in measured],
        label=f"{metric} of each trial, and the best so far",
        x_label="trial",
        y_label=metric,
        line=line,
    )
    return {"title": "Every trial, and the best so far", "svg": Markup(chart)}


def _by_setting(
    name: str,
    measured: Sequence[tuple[int, FrozenTrial]],
    best: Sequence[tuple[int, FrozenTrial]],
    metric: str,
) -> dict[str, Any]:
    some = [(k, trial) for k, trial in measured if name in trial.distributions]
    distribution = some[0][1].distributions[name]
    choices: tuple[Any, ...] = ()
    if isinstance(distribution, CategoricalDistribution):
        choices = tuple(distribution.choices)
    dots = [
        _dot(k, choices.index(t.params[name]) if choices else t.params[name], t, best)
        for k, t in some
    ]
    chart = scatter_chart(
        dots,
        label=f"{metric} of each trial by {name}",
        x_label=name,
        y_label=metric,
        names=[_short(choice) for choice in choices],
        logarithmic=bool(getattr(distribution, "log", False)),
    )
    return {"title": name, "svg": Markup(chart)}


def _dot(k: int, x: Number, trial: FrozenTrial, best: Sequence[tuple[int, FrozenTrial]]) -> Dot:
    settings = ", ".join(f"{name} {_short(value)}" for name, value in trial.params.items())
    kind = "pruned" if trial.state == TrialState.PRUNED else ""
    kind = "best" if best and best[0][0] == k else kind
    return Dot(x, _value(trial), f"trial {k}: {_value(trial):.4f}; {settings}", kind)


def _table(
    best: Sequence[tuple[int, FrozenTrial]], names: Sequence[str], metric: str
) -> dict[str, Any]:
    """The best trials; settings that have no column of their own are in the last one."""
    own = names if len(names) <= _COLUMNS - 3 else names[: _COLUMNS - 4]
    others = names[len(own) :]
    rows = []
    for k, trial in best[:_SHOWN]:
        row = [f"{k}", f"{_value(trial):.4f}", _seconds(trial)]
        row += [_short(trial.params.get(name)) for name in own]
        if others:
            row.append(", ".join(f"{name} {_short(trial.params.get(name))}" for name in others))
        rows.append(row)
    head = ["trial", metric, "seconds", *own, *(["other settings"] if others else [])]
    return {"head": head, "rows": rows}


def _value(trial: FrozenTrial) -> float:
    assert trial.value is not None
    return trial.value


def _seconds(trial: FrozenTrial) -> str:
    return f"{trial.duration.total_seconds():.0f}" if trial.duration else ""


def _short(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return number(value)
