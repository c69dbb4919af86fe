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

import divided_paths
import killed_ranks
import training_on_ranks as programs
from dcgraph.experiments.engine import train
from dcgraph.experiments.engine.errors import RanksError
from dcgraph.experiments.engine.models import load_model
from dcgraph.experiments.engine.ranks import ONE_RANK, PATIENCE, started_ranks
from dcgraph.experiments.engine.records import read_record
from dcgraph.experiments.tasks.paths.commands import Commands
from dcgraph.experiments.tasks.paths.task import Paths
from dcgraph.population._rows import RowPopulation
from parity import DATA, TASK
from ranks import Found, run

Runs = dict[int, list[Found]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


PROGRAMS = {
    3: {
        "training_on_ranks": ["five", "two", "loop_of_ones_own", "outside", "stopped"],
        "divided_paths": ["trains", "is_stopped"],
    },
    2: {
        "training_on_ranks": [
            "five", "loop_of_ones_own", "resumed", "errors", "batches", "pruned", "beside",
        ],
        "divided_paths": [
            "trains", "writes", "is_resumed", "refuses", "losses", "is_sampled", "is_not_finite",
            "bytes_on_the_wire",
        ],
    },
}  # fmt: skip
"""By number of ranks and module; what the first have begun the second go on with."""


@pytest.fixture(scope="module")
def found(place: Path) -> Runs:
    divided_paths.write_graph(place)
    runs = {}
    for world, modules in PROGRAMS.items():
        names = [f"{module}.{name}" for module, some in modules.items() for name in some]
        runs[world] = run(names, world, place)
        if world == 3:  # copies for one process
            for name in ("cut", "divided"):
                (place / f"{name}-1.pt").write_bytes((place / f"{name}-3.pt").read_bytes())
    return runs


def of(found: Runs, world: int, program: str, module: str = "training_on_ranks") -> list[Found]:
    return [one[f"{module}.{program}"] for one in found[world]]


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


def test_a_population_is_for_the_ranks_of_its_group(found: Runs) -> None:
    *inside, outside = [one["said"] for one in of(found, 3, "outside")]
    assert inside == ["", ""]
    assert outside.startswith("ValueError: rank 2 is not in the group;")


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
        self._streams = programs.OfTwoRanks(3)

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


def test_a_run_goes_on_to_be_probed_beside_a_replica_that_has_stopped(found: Runs) -> None:
    whole = train(TASK, programs.BESIDE, DATA)
    assert whole.stopped_at[2] is not None
    assert [[bool(one) for one in look.probes] for look in whole.curve] == 4 * [
        [True, True, False, True]
    ]
    resumed = of(found, 2, "beside")[0]
    assert (resumed["curve"], resumed["stopped"]) == (repr(whole.curve), whole.stopped_at)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("name", divided_paths.SETTINGS)
def test_a_codebook_divided_over_ranks_trains_as_in_one_process(
    found: Runs, place: Path, world: int, name: str
) -> None:
    ranks = [one[name] for one in of(found, world, "trains", "divided_paths")]
    expected = divided_paths.found_in(divided_paths.trained_in(place, name, ONE_RANK))
    check_close(ranks[0], expected)
    width, entities = 16, divided_paths.ENTITIES
    of_relations = expected["weights"].shape[1] - width * entities
    each = -(-entities // world)
    for rank, other in enumerate(ranks[1:], 1):
        rows = min(each, entities - rank * each)
        assert other["weights"].shape[1] == rows * width + of_relations, "no rank has others"
        assert other["curve"] == ranks[0]["curve"]
        assert other["stopped at"] == ranks[0]["stopped at"] == expected["stopped at"]
    assert (expected["stopped at"] == [None]) == (name != "diverging")


def check_close(found: Found, expected: Found) -> None:
    torch.testing.assert_close(found["weights"], expected["weights"], rtol=1e-3, atol=1e-5)
    for name in ("metrics", "calibration"):
        assert found[name] == pytest.approx(expected[name], rel=1e-3), name
    assert len(found["curve"]) == len(expected["curve"])
    for one, other in zip(found["curve"], expected["curve"], strict=True):
        assert one == [None if value is None else pytest.approx(value, rel=1e-3) for value in other]


def test_what_rank_0_draws_while_it_measures_a_divided_codebook_does_not_count(
    found: Runs,
) -> None:
    assert of(found, 2, "is_sampled", "divided_paths") == [{"said": ""}] * 2


def test_all_ranks_stop_when_the_gradient_of_the_rows_of_one_is_not_finite(found: Runs) -> None:
    for rank in of(found, 2, "is_not_finite", "divided_paths"):
        assert rank["before"] == 1 and rank["after"].isnan()


def test_a_step_on_a_divided_codebook_is_that_of_one_process(found: Runs) -> None:
    for errors in of(found, 2, "losses", "divided_paths"):
        wrong = {name: error for name, error in errors.items() if not error < 1e-5}
        assert not wrong and len(errors) == 8


def test_bytes_of_a_step_are_those_of_the_formula(found: Runs) -> None:
    """As in docs/sharded-codebooks.md: of a query of h relations, of d numbers each."""
    h, d = divided_paths.HOPS, divided_paths.WIDTH
    hops = (h - 1) * (8 + 8 * d)
    formula = {"complex": 8 * d + 12, "soft": 8 * d + 12 + hops}
    formula["straight through"] = formula["soft"] + (h - 1) * 12
    formula["hard"] = formula["soft"] + (h - 1) * 8 + 8 * d  # with L2 of source and target
    for own in of(found, 2, "bytes_on_the_wire", "divided_paths"):
        assert own == formula


def test_any_number_of_ranks_goes_on_with_a_divided_codebook(found: Runs, place: Path) -> None:
    assert of(found, 3, "is_stopped", "divided_paths") == [{"code": 143}] * 3
    undisturbed = divided_paths.found_in(divided_paths.trained_in(place, "soft", ONE_RANK))
    two, other = of(found, 2, "is_resumed", "divided_paths")
    check_close(two, undisturbed)
    assert torch.equal(two["random"], other["random"])
    single = divided_paths.trained_in(place, "soft", ONE_RANK, place / "divided-1.pt")
    check_close(divided_paths.found_in(single), undisturbed)
    assert two["damaged"].startswith("CheckpointError:") and "first_moment is" in two["damaged"]
    assert other["damaged"].startswith("OtherRankError: rank 0 has failed")


def test_the_model_of_a_divided_codebook_is_an_ordinary_one(found: Runs, place: Path) -> None:
    main, _ = of(found, 2, "writes", "divided_paths")
    assert main["trained"] == [1, 1], "one after the other"
    path, task = place / "divided" / "3.safetensors", divided_paths.TASK_OF_PATHS
    model, _ = load_model(path, task)
    single = divided_paths.trained_in(place, "soft", ONE_RANK).model(0)
    for name, weights in single.named_parameters():
        torch.testing.assert_close(model.get_parameter(name), weights, rtol=1e-3, atol=1e-5)
    record = read_record(path.with_suffix(".json"))
    assert record.parameters == sum(weights.numel() for weights in single.parameters())
    text = Commands(Paths).evaluate(model=path, data_dir=place)
    assert "MRR" in text


def test_what_cannot_be_divided_says_so(found: Runs) -> None:
    expected = {
        "transe": "for the models discrete and complex, not transe",
        "coke": "for the models discrete and complex, not coke",
        "top_k": "top_k=3 needs the scores of all entities",
        "two": "trains one model at a time, not 2; leave out --at-once",
        "another task": "the models of parity have no codebook that ranks could divide",
        "scores": "divided over ranks, which can only train",
    }
    for errors in of(found, 2, "refuses", "divided_paths"):
        assert errors.keys() == expected.keys()
        for name, text in expected.items():
            assert text in errors[name], errors[name]


def test_rank_0_says_what_is_wrong_and_the_others_end_too(found: Runs) -> None:
    main, other = of(found, 2, "errors")
    assert main["other data"] == (
        "RanksError: rank 1 has other data than rank 0 (others and bits); all of them need the "
        "same."
    )
    assert main["no data"] == "RanksError: rank 1: ValueError: no such file"
    assert main["calibration"] == "RanksError: rank 1: ValueError: no optimum"
    assert main["other settings"].startswith("RanksError: rank 1 has other settings than rank 0")
    assert main["broken"].startswith("CheckpointError:") and "whole dcgraph" in main["broken"]
    assert main["no place"].startswith("CheckpointError: cannot write the checkpoint")
    for name, text in other.items():
        failed = 1 if name in ("no data", "calibration") else 0
        assert text.startswith(f"OtherRankError: rank {failed} has failed"), text


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


def test_ranks_that_are_killed_leave_what_undisturbed_ones_leave() -> None:
    """torchrun's agent starts the ranks again. Some kills; `make kills` sends twenty."""
    with subprocess.Popen(
        [sys.executable, killed_ranks.__file__, "--kills", "5", "--quick"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as run:  # fmt: skip
        try:
            said, errors = run.communicate(timeout=400)
        finally:  # and nothing that it has started stays
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 0, errors
    found = json.loads(said.splitlines()[-1])
    assert found["kills"] == 5 and found["equal"]
    assert found["steps"] == sorted(found["steps"]) and len(set(found["steps"])) > 1, "they go on"


def test_without_torchrun_there_is_one_rank() -> None:
    with started_ranks() as ranks:
        assert ranks == ONE_RANK and ranks.is_main
        assert ranks.everyones(1) == ranks.at_main(1) == [1] and ranks.largest(2, 3) == [2, 3]


@pytest.mark.parametrize("asked", ["soon", "nan", "1e300"])
def test_a_timeout_that_is_no_number_is_said(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "0"), (PATIENCE, asked)):
        monkeypatch.setenv(name, value)
    with pytest.raises(RanksError, match=f"{PATIENCE}='{asked}' is no number"), started_ranks():
        pass
