"""Training over ranks: the same records, one voice, and nothing that hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import training_on_ranks as programs
from dcgraph.experiments.engine import train
from dcgraph.experiments.engine.ranks import ONE_RANK, started_ranks
from dcgraph.experiments.engine.records import read_record
from dcgraph.population._rows import RowPopulation
from parity import DATA, TASK
from ranks import Found, run

Runs = dict[int, list[Found]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def found(place: Path) -> Runs:
    """Three ranks, then two; what the first have begun the second go on with."""
    names = {3: ["five", "two", "loop_of_ones_own", "stopped"]}
    names[2] = ["five", "loop_of_ones_own", "resumed", "errors", "batches", "pruned"]
    runs = {}
    for world, some in names.items():
        runs[world] = run([f"training_on_ranks.{name}" for name in some], world, place)
        if world == 3:  # a copy for one process
            (place / "cut-1.pt").write_bytes((place / "cut-3.pt").read_bytes())
    return runs


def of(found: Runs, world: int, program: str) -> list[Found]:
    return [one[f"training_on_ranks.{program}"] for one in found[world]]


def torchrun(folder: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Two ranks of a program, as a user starts them."""
    file = folder / "program.py"
    file.write_text(program)
    command = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    own = {"PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.run(
        [sys.executable, "-m", *command, str(file)],
        capture_output=True, text=True, timeout=120,
        env=os.environ | own | {"OMP_NUM_THREADS": "1"} | environment,
    )  # fmt: skip


def test_records_and_models_do_not_depend_on_the_number_of_ranks(found: Runs, place: Path) -> None:
    programs.run(place / "five-1", programs.FIVE, ONE_RANK)
    single = programs.left_in(place / "five-1")
    assert len(single) == 14, "records, models, and probes of those that go on"
    assert programs.left_in(place / "five-2") == single
    assert programs.left_in(place / "five-3") == single
    record = read_record(place / "five-3" / "1.json")
    assert record.stopped_at is not None, "one of them diverges, and is the only one"
    assert read_record(place / "five-3" / "0.json").hardware.startswith(
        "3 ranks with 1 CPU threads"
    )


def test_more_ranks_than_replicas_are_no_harm(found: Runs, place: Path) -> None:
    programs.run(place / "two-1", programs.TWO, ONE_RANK)
    assert programs.left_in(place / "two-3") == programs.left_in(place / "two-1")


def test_a_population_in_a_loop_of_ones_own(found: Runs) -> None:
    single = programs.own_loop(None)
    for world in (2, 3):
        own = []
        for rank in of(found, world, "loop_of_ones_own"):
            assert torch.equal(rank["losses"], single["losses"])
            assert torch.equal(rank["codebooks"], single["codebooks"])
            own += rank["own"]
        assert own == list(range(5)), "each is trained by one rank, in their order"


def test_replicas_are_pruned_wherever_they_are(found: Runs) -> None:
    main, _ = of(found, 2, "pruned")
    assert main == programs.pruned(ONE_RANK)
    assert main["stopped"][3] is None and "None" in main["curve"]


def test_batches_divided_over_ranks_train_as_one_process_does(
    found: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same examples, noise and gates, up to rounding."""
    main, other = of(found, 2, "batches")
    assert torch.equal(main["weights"], other["weights"]) and main["curve"] == other["curve"]
    assert not torch.equal(main["streams"], other["streams"]), "noise differs from rank to rank"
    made = RowPopulation.__init__

    def with_noise_of_both(self: RowPopulation, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        self.streams = programs.OfTwoRanks(3)

    monkeypatch.setattr(RowPopulation, "__init__", with_noise_of_both)
    one_process = programs.batches_over(ONE_RANK, tmp_path / "one.pt")
    torch.testing.assert_close(main["weights"], one_process.population.weights)
    monkeypatch.undo()
    other_noise = programs.batches_over(ONE_RANK, tmp_path / "other.pt").population.weights
    assert (other_noise - main["weights"]).abs().max() > 1e-3, "the noise is part of it"


def test_a_run_of_divided_batches_is_stopped_and_resumed(found: Runs) -> None:
    for rank in of(found, 2, "batches"):
        assert rank["code"] == 143 and torch.equal(rank["resumed"], rank["weights"])
        assert "batch=9 cannot be divided over 2 ranks; use a multiple" in rank["three"]


def test_a_signal_stops_all_ranks_and_any_number_of_them_goes_on(found: Runs, place: Path) -> None:
    assert of(found, 3, "stopped") == [{"code": 143}] * 3
    undisturbed = train(TASK, programs.FIVE, DATA)
    single = train(TASK, programs.FIVE, DATA, save_to=place / "cut-1.pt", resume=True)
    assert single.curve == undisturbed.curve and single.metrics == undisturbed.metrics
    main, _ = of(found, 2, "resumed")
    assert main["curve"] == repr(undisturbed.curve)
    assert main["metrics"] == repr(undisturbed.metrics)


def test_rank_0_says_what_is_wrong_and_the_others_end_too(found: Runs) -> None:
    main, other = of(found, 2, "errors")
    assert main["other data"] == (
        "RanksError: rank 1 has other data than rank 0 (others and bits); all of them need the "
        "same."
    )
    assert main["no data"] == "RanksError: rank 1: ValueError: no such file"
    assert main["other settings"].startswith("RanksError: rank 1 has other settings than rank 0")
    assert main["broken"].startswith("CheckpointError:") and "whole dcgraph" in main["broken"]
    assert main["no place"].startswith("CheckpointError: cannot write the checkpoint")
    assert all(text.startswith("OtherRankError: rank 0 has failed") or name == "no data"
               for name, text in other.items()), other  # fmt: skip
    assert other["no data"].startswith("OtherRankError: rank 1 has failed")


ENDS = """
import glob
from dcgraph.experiments.engine import train
from dcgraph.experiments.engine.ranks import started_ranks
from training_on_ranks import DATA, TASK, TWO
with started_ranks() as ranks:
    train(TASK, TWO, DATA, ranks=ranks)
threads = [open(path).read().strip() for path in glob.glob("/proc/self/task/*/comm")]
assert ranks.world == 2 and not [name for name in threads if "gloo" in name], threads
"""


def test_ranks_end_with_all_they_began(tmp_path: Path) -> None:
    """Threads of gloo that are left abort the process at its end, now and then."""
    run = torchrun(tmp_path, ENDS)
    assert run.returncode == 0, run.stderr


HANGS = """
import sys, time
from dcgraph.experiments.engine.ranks import started_ranks
with started_ranks() as ranks:
    ranks.everyones(1)
    if ranks.rank == 1:
        print("hangs", flush=True)
        time.sleep(600)
    try:
        ranks.everyones(2)
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        sys.exit(3)
"""


def test_a_rank_that_hangs_is_given_up(tmp_path: Path) -> None:
    run = torchrun(tmp_path, HANGS, DCGRAPH_RANKS_TIMEOUT="2")
    assert run.returncode != 0
    assert "RanksError: another rank has stopped, or does not answer (" in run.stdout
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True)
    assert not left.stdout, "no process is left"


def test_ranks_that_are_killed_twenty_times_leave_what_undisturbed_ones_leave(
    tmp_path: Path,
) -> None:
    """torchrun's agent starts the ranks again; all that it has started ends with it."""
    program = Path(programs.__file__).with_name("killed_ranks.py")
    own = {"PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo"}
    with subprocess.Popen(
        [sys.executable, str(program), str(tmp_path), "20"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | own | {"DCGRAPH_RANKS_TIMEOUT": "4", "OMP_NUM_THREADS": "1"},
    ) as run:  # fmt: skip
        try:
            said, errors = run.communicate(timeout=400)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 0, errors
    found = json.loads(said.splitlines()[-1])
    assert found["kills"] == 20 and found["ranks"] == [0, 1] and found["equal"]
    assert found["steps"] == sorted(found["steps"]) and len(set(found["steps"])) > 3, "they go on"


def test_without_torchrun_there_is_one_rank() -> None:
    with started_ranks() as ranks:
        assert ranks == ONE_RANK and ranks.is_main
        assert ranks.everyones(1) == ranks.at_main(1) == [1] and ranks.largest(2, 3) == [2, 3]
