"""The page of a search: what is on it at every moment, and that no text of a study is markup."""

from __future__ import annotations

import re
from pathlib import Path

import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from dcgraph.experiments.report.search import importance_of, write_search_report

SPACE: dict[str, BaseDistribution] = {
    "lr": FloatDistribution(1e-4, 1e-1, log=True),
    "<b>": FloatDistribution(0.0, 1.0),
    "dropres": CategoricalDistribution([False, True]),
    "gamma": FloatDistribution(0.0, 1.0),
    "decay": FloatDistribution(0.0, 1.0),
}
ABOUT = {
    "task": "parity<i>", "settings": {"epochs": 2}, "space": {}, "seeds": 2, "data": "d",
    "metric": "accuracy", "sampler": "tpe", "pruner": "median", "id": "x",
}  # fmt: skip


def trial(k: int, state: TrialState = TrialState.COMPLETE) -> FrozenTrial:
    lr = 10 ** (-4 + 3 * (k % 30) / 30)
    others = dict.fromkeys(("<b>", "gamma", "decay"), k * 7 % 11 / 11)
    return create_trial(
        state=state,
        value=lr,  # the last one of a pruned trial, as Optuna has it
        params={"lr": lr, "dropres": bool(k % 2), **others},
        distributions=SPACE,
        intermediate_values={1: lr} if state == TrialState.PRUNED else {},
    )


def study_of(trials: list[FrozenTrial]) -> optuna.Study:
    study = optuna.create_study(direction="maximize", study_name="a&b")
    study.set_user_attr("dcgraph", ABOUT)
    study.add_trials(trials)
    return study


def page_of(trials: list[FrozenTrial], tmp_path: Path) -> str:
    write_search_report(tmp_path / "report.html", study_of(trials), ["dcgraph search <u>"])
    return (tmp_path / "report.html").read_text()


def test_a_page_has_history_settings_importance_and_a_table(tmp_path: Path) -> None:
    page = page_of([trial(k) for k in range(30)], tmp_path)
    assert page.count('<svg viewBox="0 0 420') == 1 + len(SPACE)
    assert page.count('<circle class="dot best" cx="') == 1 + 1 + len(SPACE), "in the key, too"
    rows = re.findall(r"<tr><th scope=\"row\">(\d+)</th>(.*?)</tr>", page)
    assert [int(number) for number, _ in rows][:2] == [29, 28] and len(rows) == 15
    heads = re.findall(r'<th scope="col">(.*?)</th>', page.partition("</table>")[0])
    assert heads[:4] == ["trial", "accuracy", "seconds", "lr"] and len(heads) == 7
    assert heads[-1] == "other settings"
    assert "the mean over 2 seeds" in page and "Which settings matter" in page
    shares = importance_of(study_of([trial(k) for k in range(30)]))
    assert shares[0][0] == "lr" and sum(share for _, share in shares) == pytest.approx(1)


def test_texts_are_escaped(tmp_path: Path) -> None:
    page = page_of([trial(k) for k in range(3)], tmp_path)
    assert "parity&lt;i&gt;" in page and "a&amp;b" in page and "search &lt;u&gt;" in page
    assert (
        "<i>" not in page
        and "<u>" not in page
        and "<b>" not in re.sub(r"<figcaption><b>.*?</b>", "", page)
    )


def test_a_study_that_has_just_begun_has_a_page(tmp_path: Path) -> None:
    assert "No trial has been measured yet" in page_of([], tmp_path)
    page = page_of([trial(0, TrialState.PRUNED)], tmp_path)
    assert "1 pruned" in page and "Which settings matter" not in page


def test_what_was_pruned_is_hollow(tmp_path: Path) -> None:
    page = page_of([trial(0, TrialState.PRUNED), trial(1)], tmp_path)
    assert page.count('<circle class="dot pruned" cx="') == 1 + 1 + len(SPACE)
