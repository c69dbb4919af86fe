"""The search from the command line: one line for every mistake, and what it says at its end."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import optuna
import pytest

from dcgraph.experiments import cli

QUICK = ["search", "parity:Parity", "--sweep", "lr=1e-3..1e-1:log", "dropres=0,1", "--trials", "3"]


def one_line(text: str) -> str:
    (line,) = text.splitlines()
    return line


def test_a_search_says_what_is_best_and_how_to_train_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = [*QUICK, "--epochs", "3", "--out", str(out)]
    assert cli.main(words) == 0
    shown = capsys.readouterr().out
    assert (
        f"Searching lr, dropres of parity on cpu: study out in sqlite:///{out}/study.db." in shown
    )
    assert "Trials 0, 1, 2 of 3, 3 replicas as one population." in shown
    assert re.search(r"3 trials, 0 of them pruned. Best: trial \d, 0\.\d{4} with lr ", shown)
    page = (out / "report.html").read_text()
    assert "Every trial, and the best so far" in page and shlex.join(words[:4]) in page
    assert len(list((out / "records").iterdir())) == 3
    command = shlex.split(shown.partition("To train it: ")[2].splitlines()[0])
    assert command[:4] == ["dcgraph", "train", "parity:Parity", "--preset"]
    assert command[command.index("--epochs") + 1] == "3"
    assert cli.main([*command[1:], "--out", str(tmp_path / "best")]) == 0
    capsys.readouterr()
    assert cli.main(words) == 0, "nothing is left to do"
    assert "3 trials" in capsys.readouterr().out


def test_the_page_can_be_drawn_at_any_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    url = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    assert cli.main([*QUICK, "--storage", url, "--study", "mine", "--out", str(out)]) == 0
    page = out / "report.html"
    page.unlink()
    assert cli.main(["search", "--report", "--storage", url, "--out", str(out)]) == 0
    assert "<h1>dcgraph search: mine</h1>" in page.read_text()
    page.unlink()
    again = ["search", "parity:Parity", "--report", "--storage", url, "--study", "mine"]
    assert cli.main([*again, "--out", str(out)]) == 0 and page.exists()
    optuna.create_study(study_name="other", storage=url)
    capsys.readouterr()
    assert cli.main(["search", "--report", "--storage", url, "--out", str(out)]) == 1
    assert "There are: mine, other" in one_line(capsys.readouterr().err)
    assert cli.main(["search", "--report", "--storage", url, "--study", "other"]) == 1
    assert "of another program" in one_line(capsys.readouterr().err)
    assert cli.main(["search", "--report", "--out", str(tmp_path / "none")]) == 1
    assert "there is no study in" in one_line(capsys.readouterr().err)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["search"], 2, ["which TASK", "dcgraph search --help"]),
        (["search", "adition"], 2, ["did you mean 'addition'"]),
        (["search", "parity:Parity", "--trials", "3"], 2, ["nothing to search", "--sweep"]),
        ([*QUICK[:-2]], 2, ["trials=0", "--trials N"]),
        ([*QUICK, "--at-once", "0"], 2, ["at-once=0", "at least 1"]),
        ([*QUICK, "--grace", "1"], 2, ["grace=1", "at least 4"]),
        ([*QUICK, "--sampler", "best"], 2, ["'best'", "tpe"]),
        ([*QUICK, "--sweep", "taw=1"], 2, ["did you mean 'tau'"]),
        ([*QUICK, "--sweep", "lr=1,2"], 2, ["lr", "swept twice"]),
        ([*QUICK, "--sweep", "tau=-1..2"], 2, ["tau"]),
        ([*QUICK, "--batch", "100"], 2, ["64 training examples"]),
        ([*QUICK, "--storage", "study.db"], 1, ["'study.db' is no URL", "sqlite:///FILE"]),
        ([*QUICK, "--storage", "postgresql:me:secret@h/x"], 1, ["***@h/x' is no URL"]),
        ([*QUICK, "--storage", "postgresql://me:a@b:secret@h/x"], 1, ["***@h/x' is no URL"]),
        ([*QUICK, "--storage", "postgresql://me:a@secret/@h/x"], 1, ["write @ in a password"]),
        ([*QUICK, "--storage", "mysql://a:secret@h/x"], 1, ["cannot be used", "postgresql://"]),
        (
            [*QUICK, "--storage", "postgresql://me:secret@127.0.0.1:1/x"],
            1,
            ["postgresql://me:***@127.0.0.1:1/x", "does not answer", "refused"],
        ),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], code: int, said: list[str], tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == code
    line = one_line(capsys.readouterr().err)
    assert line.startswith("dcgraph: ") and "secret" not in line
    for word in said:
        assert word in line


def test_a_file_that_is_no_database_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study.db").write_text("not a database, but long enough to be taken for one" * 99)
    assert cli.main([*QUICK, "--out", str(tmp_path)]) == 1
    assert "file is not a database" in one_line(capsys.readouterr().err)


def test_a_study_with_other_settings_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*QUICK, "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    assert cli.main([*QUICK, "--tau", "2", "--out", str(tmp_path)]) == 1
    line = one_line(capsys.readouterr().err)
    assert "settings tau: 1.0, now 2.0" in line and "--study" in line


def test_without_the_extra_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.startswith("dcgraph.experiments.engine.s") and name.endswith(("search", "studies")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert cli.main([*QUICK, "--out", str(tmp_path / "out")]) == 1
    assert "pip install 'dcgraph[search]'" in one_line(capsys.readouterr().err)


def test_a_password_is_not_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dcgraph.experiments.cli.search import _without_password

    words = ["--storage", "postgresql://me:secret@host/db", "--storage=postgresql://a:secret@h/d"]
    words.append("postgresql://host/db?user=me&password=secret&sslmode=require")
    assert _without_password(words) == [word.replace("secret", "***") for word in words]


def test_help_answers_without_torch_and_optuna() -> None:
    code = (
        "import sys; sys.modules.update(torch=None, optuna=None)\n"
        "from dcgraph.experiments import cli; cli.main(['search', '--help'])"
    )
    path = {"PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=path, timeout=60
    )
    assert run.returncode == 0 and "Search for the settings" in run.stdout, run.stderr
