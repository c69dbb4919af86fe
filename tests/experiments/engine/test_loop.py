"""The training loop: it resumes bit for bit, survives being killed, never leaves half a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import dcgraph as dc
from dcgraph.experiments.engine import (
    Batch,
    Callbacks,
    Data,
    Execution,
    Interrupted,
    Metric,
    Metrics,
    Outcome,
    evaluation,
    runs,
    train,
)
from dcgraph.experiments.engine.checkpoint import load, save
from dcgraph.experiments.engine.errors import CheckpointError, ModelError
from dcgraph.experiments.engine.jobs import Job, differences, finished_record
from dcgraph.experiments.engine.metrics import Decoder
from dcgraph.experiments.engine.models import calibration_of, load_model, save_model
from dcgraph.experiments.engine.order import order_of_epoch, schedule_of_epoch
from dcgraph.experiments.engine.records import read_probes, read_record, write_record
from dcgraph.experiments.engine.runs import make_records, perform
from parity import QUICK, Lengths, Parity, ParitySettings

TASK = Parity()
DATA = TASK.data(QUICK)
ACCURACY = Metric("accuracy", "validation")
DECODERS: tuple[Decoder, ...] = ("argmax", "sample")
THREE = [replace(QUICK, seed=0), replace(QUICK, seed=1, lr=1e-2), replace(QUICK, seed=2, tau=2.0)]


def same(one: Outcome, two: Outcome) -> bool:
    return (
        torch.equal(one.population.weights, two.population.weights)
        and torch.equal(one.best_weights, two.best_weights)
        and one.curve == two.curve
        and one.metrics == two.metrics
    )


def test_the_same_seeds_repeat_bit_for_bit() -> None:
    one, two = train(TASK, THREE, DATA), train(TASK, THREE, DATA)
    assert same(one, two)
    assert [look.step for look in one.curve] == [4, 8, 12, 16]
    sampled = replace(ACCURACY, decoder="sample")
    assert set(one.curve[0].metrics) == {ACCURACY, sampled}
    assert set(one.metrics[0]) == {replace(metric, set="test") for metric in (ACCURACY, sampled)}


def test_looking_inside_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = train(TASK, THREE, DATA)
    monkeypatch.setattr(evaluation, "_PROBES", 3)
    seldom = train(TASK, THREE, DATA)
    assert torch.equal(looked.population.weights, seldom.population.weights)
    assert [bool(look.probes) for look in seldom.curve] == [True, True, False, True]
    first, second, third = looked.curve[-1].probes
    assert first and second and third and first != second
    assert [(r["name"], r["call"]) for r in third] == [("symbol", 0), ("symbol", 1), ("symbol", 2)]
    assert sum(third[0]["by_category"]["weight"]) == pytest.approx(1, abs=0.01)


def test_a_loss_that_cannot_be_probed_is_no_reason_to_stop() -> None:
    def to_batch(constants: Batch, rows: Batch, training: bool) -> Batch:
        return {**rows, "turned": rows["bits"]} if training else rows

    class Augmented(Parity):
        def loss(self, model: nn.Module, batch: Batch) -> Tensor:
            return super().loss(model, {**batch, "bits": batch["turned"]})

    with pytest.warns(UserWarning, match="will not be probed, .* KeyError: 'turned'"):
        outcome = train(Augmented(), THREE, replace(DATA, to_batch=to_batch))
    assert len(outcome.curve) == 4 and not any(look.probes for look in outcome.curve)


def test_batches_have_one_shape_and_every_replica_its_own_order(tmp_path: Path) -> None:
    task = Lengths()
    data = task.data(QUICK)
    assert data.sizes("train") == [64, 10] and data.size("test") == 26
    seen: list[tuple[int, ...]] = []

    class Watched(Lengths):
        def loss(self, model: nn.Module, batch: Batch) -> Tensor:
            if model.training:
                seen.append(tuple(batch["bits"].shape))
            return super().loss(model, batch)

    one = train(Watched(), THREE, data)
    assert one.steps == 2 * (8 + 1), "10 examples give one whole batch of 8"
    steps = seen[: one.steps + 8]  # and a probe for each evaluation and replica
    assert steps.count((8, 2)) == 2 and set(steps) >= {(8, 2), (8, 3)}
    assert same(one, train(task, THREE, data)), "and it repeats"

    def stop(step: int, steps: int) -> None:
        if step >= 5:
            os.kill(os.getpid(), signal.SIGINT)

    path = tmp_path / "checkpoint.pt"
    with pytest.raises(Interrupted):
        train(task, THREE, data, save_to=path, callbacks=Callbacks(progress=stop))
    assert same(one, train(task, THREE, data, save_to=path, resume=True)), "also when cut off"


def test_weights_are_chosen_by_the_decoding_that_the_task_names(tmp_path: Path) -> None:
    class Sampled(Parity):
        def execution(self, settings: ParitySettings) -> Execution:
            return Execution(decoder="sample")

    outcome = train(Sampled(), THREE, DATA)
    sampled = replace(ACCURACY, decoder="sample")
    assert outcome.selected_by == sampled
    for index in range(len(THREE)):
        values = [look.metrics[sampled][index] or 0.0 for look in outcome.curve]
        assert outcome.score(index) == max(values)
        assert values[[4, 8, 12, 16].index(outcome.best_step[index])] == max(values)
    assert make_records(Sampled(), outcome, DATA)[0].selection.metric == sampled


def test_the_probe_looks_at_long_examples_all_over_their_table() -> None:
    tables = [
        {"x": torch.arange(900.0).view(900, 1)},
        {"x": torch.arange(600.0).view(600, 1).expand(600, 7)},
        {"x": torch.zeros(20, 50)},
    ]
    rows = evaluation.probed_rows(Data({"train": tables, "test": tables}, "x"), "test")["x"]
    assert rows.shape == (256, 7) and rows[:, 0].tolist() == list(range(0, 512, 2))
    few = evaluation.probed_rows(Data({"train": tables[2:], "test": tables[2:]}, "x"), "test")["x"]
    assert few.shape == (20, 50)


def test_every_example_comes_once_in_an_epoch() -> None:
    schedule = schedule_of_epoch([8, 1, 3], epoch=4)
    assert sorted(schedule) == [0] * 8 + [1] + [2] * 3
    assert schedule != schedule_of_epoch([8, 1, 3], epoch=5)
    orders = [order_of_epoch(50, seed=1, epoch=2, table=table) for table in (0, 1)]
    assert not torch.equal(*orders)
    assert all(torch.equal(order.sort().values, torch.arange(50)) for order in orders)


def test_a_replica_sees_another_order_in_every_epoch() -> None:
    orders = [order_of_epoch(50, seed=1, epoch=epoch, table=0) for epoch in (0, 1)]
    assert not torch.equal(*orders)
    assert torch.equal(orders[0], order_of_epoch(50, seed=1, epoch=0, table=0))


class Counted(Parity):
    """Its loss is the number of the example, whatever the model does."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return 0 * super().loss(model, batch) + batch["number"]


def test_the_loss_of_a_curve_is_the_mean_since_the_last_evaluation() -> None:
    """The numbers of the examples in the order of each replica, which differ."""
    numbered = {"train": {**DATA.table("train"), "number": torch.arange(64.0)}}
    splits = {s: {**DATA.table(s), "number": torch.zeros(16)} for s in ("validation", "test")}
    outcome = train(Counted(), THREE, replace(DATA, splits=numbered | splits))
    records = make_records(TASK, outcome, DATA)
    for index, settings in enumerate(THREE):
        orders = [order_of_epoch(64, settings.seed, epoch).float() for epoch in range(2)]
        means = [half.mean().item() for order in orders for half in order.split(32)]
        assert [one.loss[index] for one in outcome.curve] == pytest.approx(means)
        assert records[index].curve.loss == pytest.approx(means)


class Constant(Parity):
    """All evaluations are equally good."""

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"accuracy": torch.ones(len(batch["parity"]))}


def test_of_equally_good_weights_the_earliest_are_kept() -> None:
    outcome = train(Constant(), THREE, DATA)
    assert outcome.best_step == [4, 4, 4]
    assert [r.selection.step for r in make_records(TASK, outcome, DATA)] == [4, 4, 4]


class Undecided(nn.Module):
    """Two categories with equal probabilities: argmax takes the first, a sample either."""

    def __init__(self) -> None:
        super().__init__()
        self.choice, self.weight = dc.Categorical(), nn.Parameter(torch.zeros(1))

    def forward(self, bits: Tensor) -> Tensor:
        z: Tensor = self.choice(0 * self.weight * bits[:, :2])
        return z


class Coin(Parity):
    def model(self, settings: ParitySettings) -> nn.Module:
        return Undecided()

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"accuracy": model(batch["bits"])[:, 0]}


def test_the_nodes_decode_as_an_evaluation_asks() -> None:
    outcome = train(Coin(), [QUICK], DATA)
    found = [outcome.curve[0].metrics[replace(ACCURACY, decoder=d)][0] for d in DECODERS]
    assert found[0] == 1 and found[1] is not None and 0 < found[1] < 1


def test_it_learns() -> None:
    long = replace(QUICK, epochs=30, lr=3e-2, alpha_step=0.05, gamma=0.05, evaluations=1)
    outcome = train(TASK, [replace(long, seed=seed) for seed in range(6)], DATA)
    assert max(final[Metric("accuracy")] or 0 for final in outcome.metrics) == 1.0
    model = outcome.model(0)
    assert not model.training


def test_the_best_weights_are_those_of_the_best_evaluation() -> None:
    outcome = train(TASK, THREE, DATA)
    for index in range(len(THREE)):
        values = [look.metrics[ACCURACY][index] or 0.0 for look in outcome.curve]
        assert values[[4, 8, 12, 16].index(outcome.best_step[index])] == max(values)
        assert outcome.score(index) == max(values)
    held_out = DATA.table("validation")
    model = outcome.model(1)
    right = TASK.metrics(model, held_out)["accuracy"].mean()
    assert float(right) == pytest.approx(outcome.score(1))


@pytest.mark.parametrize("stop", [1, 5, 8, 13])
def test_an_interrupted_run_goes_on_bit_for_bit(stop: int, tmp_path: Path) -> None:
    whole = train(TASK, THREE, DATA)
    path = tmp_path / "run.pt"

    def interrupt(step: int, steps: int) -> None:
        if step >= stop:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        train(TASK, THREE, DATA, save_to=path, callbacks=Callbacks(progress=interrupt))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    torch.manual_seed(99)  # what else happened in between does not matter
    resumed = train(TASK, THREE, DATA, save_to=path, resume=True)
    assert same(whole, resumed)


def test_a_finished_run_can_be_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    whole = train(TASK, THREE, DATA, save_to=path)
    assert same(whole, train(TASK, THREE, DATA, save_to=path, resume=True))


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    train(TASK, THREE, DATA, save_to=path)
    with pytest.raises(CheckpointError, match="other settings"):
        train(TASK, THREE[:2], DATA, save_to=path, resume=True)
    other = replace(DATA, fingerprint="other")
    with pytest.raises(CheckpointError, match="other data"):
        train(TASK, THREE, other, save_to=path, resume=True)


def test_damaged_foreign_and_older_checkpoints_get_a_clear_error(tmp_path: Path) -> None:
    good = tmp_path / "good.pt"
    save(good, {"weights": torch.randn(1000)})
    whole = good.read_bytes()
    path = tmp_path / "bad.pt"
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match="not a whole dcgraph checkpoint"):
            load(path)
    path.write_text("hello")
    with pytest.raises(CheckpointError, match="not a whole"):
        load(path)
    torch.save({"weights": 1}, path)
    with pytest.raises(CheckpointError, match="not a dcgraph checkpoint"):
        load(path)
    torch.save({"format": "dcgraph checkpoint", "version": 0}, path)
    with pytest.raises(CheckpointError, match="version 0"):
        load(path)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        load(tmp_path / "missing.pt")


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("evil",)


def test_loading_never_runs_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"format": "dcgraph checkpoint", "version": 1, "x": Evil()}, "evil.pt")
    with pytest.raises(CheckpointError):
        load(Path("evil.pt"))
    assert not Path("evil").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    save(path, {"step": 1})
    with pytest.raises(Exception, match="pickle"):
        save(path, {"step": lambda: None})
    assert load(path)["step"] == 1
    assert list(tmp_path.iterdir()) == [path]


def test_killed_at_random_moments_nothing_is_lost(tmp_path: Path) -> None:
    """At least 20 times SIGKILL; the program forks, so that torch is imported once."""
    program = Path(__file__).parents[2] / "killed.py"
    run = subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads(run.stdout.splitlines()[-1])
    assert report["kills"] >= 20
    assert report["equal"]
    assert report["lost_at_most_since_last_checkpoint"]
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".pt"] == ["run.pt"]


def test_a_diverging_replica_is_reported_and_its_best_weights_stay() -> None:
    wild = replace(QUICK, seed=7, lr=1e30)
    told: list[tuple[ParitySettings, int]] = []
    outcome = train(
        TASK,
        [THREE[0], wild],
        DATA,
        callbacks=Callbacks(stopped=lambda s, step: told.append((s, step))),  # type: ignore[arg-type]
    )
    assert [settings.seed for settings, _ in told] == [7]
    assert outcome.stopped_at[0] is None and outcome.stopped_at[1] == told[0][1]
    assert outcome.curve[-1].metrics[ACCURACY][1] is None
    assert outcome.curve[-1].loss[1] is None
    assert outcome.best_weights.isfinite().all()
    alone = train(TASK, [THREE[0], replace(QUICK, seed=7)], DATA)
    assert torch.equal(alone.population.weights[0], outcome.population.weights[0])


def test_a_population_that_diverges_as_a_whole_stops_early() -> None:
    wild = [replace(QUICK, seed=seed, lr=1e30, epochs=500) for seed in range(2)]
    outcome = train(TASK, wild, DATA)
    assert outcome.population.device.type == "cpu"
    assert all(step is not None and step < 100 for step in outcome.stopped_at)
    assert len(outcome.curve) < 100


def test_a_single_replica_that_diverges_is_stopped_too() -> None:
    """Without vmap the nodes could read their logits, and would complain before the loop looks."""
    outcome = train(TASK, [replace(QUICK, lr=1e30)], DATA)
    assert outcome.stopped_at[0] is not None and outcome.best_weights.isfinite().all()


class Negative(Parity):
    """A monitor that is always far below 0."""

    def execution(self, settings: ParitySettings) -> Execution:
        return Execution(monitor="score")

    def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
        return {"score": -10 - self.loss(model, batch)}


def test_a_monitor_may_be_negative_and_must_exist() -> None:
    outcome = train(Negative(), THREE, DATA)
    assert all(step > 0 for step in outcome.best_step)

    class Lost(Parity):
        def execution(self, settings: ParitySettings) -> Execution:
            return Execution(monitor="score")

    with pytest.raises(ValueError, match="the monitor 'score' is not among the metrics"):
        train(Lost(), THREE, DATA)


def test_the_best_of_a_folder_is_never_one_that_diverged(tmp_path: Path) -> None:
    replicas = [replace(QUICK, lr=1e30), replace(QUICK, seed=1)]
    jobs = [
        Job(r, tmp_path / f"{k}.json", tmp_path / f"{k}.safetensors")
        for k, r in enumerate(replicas)
    ]
    list(perform(TASK, jobs, tmp_path / "work"))
    (tmp_path / "a.safetensors").write_text("junk")
    _, settings = load_model(tmp_path, TASK)
    assert settings == replicas[1]


def test_data_are_checked_before_training() -> None:
    with pytest.raises(ValueError, match="no split 'test'"):
        train(TASK, THREE, DATA.only("train", "validation"))
    with pytest.raises(ValueError, match="as many rows"):
        Data(
            {"train": {"x": torch.zeros(3), "y": torch.zeros(2)}, "test": {"x": torch.zeros(1)}}, ""
        )


def test_in_a_thread_ctrl_c_is_left_to_the_main_thread() -> None:
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(train(TASK, THREE[:1], DATA)))
    thread.start()
    thread.join()
    assert len(outcomes) == 1


def test_replicas_of_different_structure_are_refused() -> None:
    with pytest.raises(ValueError, match="differ only in settings per replica"):
        train(TASK, [QUICK, replace(QUICK, width=4)], DATA)
    with pytest.raises(ValueError, match="more than the 64 training examples"):
        train(TASK, [replace(QUICK, batch=65)], DATA)


def test_records_hold_what_is_needed_to_repeat_and_believe(tmp_path: Path) -> None:
    outcome = train(TASK, THREE, DATA)
    records = make_records(TASK, outcome, DATA)
    path = tmp_path / "record.json"
    write_record(path, records[1])
    record = read_record(path)
    assert record.settings["lr"] == 1e-2 and record.seed == 1
    assert record.settings.keys() == asdict(QUICK).keys()
    assert record.population.size == 3 and record.data == "bits"
    assert record.population == records[0].population
    assert len(record.curve.step) == 4 and record.selection.metric == ACCURACY
    assert record.hardware and record.code and record.seconds > 0
    assert record.score() == outcome.score(1) == record.when_selected(ACCURACY)
    assert json.loads(path.read_text())["schema"] == 1


def jobs_in(folder: Path, replicas: list[ParitySettings]) -> list[Job]:
    return [
        Job(r, folder / f"{k}.json", folder / f"{k}.safetensors") for k, r in enumerate(replicas)
    ]


def test_only_what_is_missing_is_run(tmp_path: Path) -> None:
    replicas = [*THREE, replace(QUICK, width=4)]
    jobs = jobs_in(tmp_path, replicas)
    work = tmp_path / "work"
    sizes = [len(outcome.replicas) for outcome in perform(TASK, jobs, work)]
    assert sizes == [3, 1] and not work.exists()
    assert not list(perform(TASK, jobs, work))
    jobs[1].record.unlink()
    (outcome,) = perform(TASK, jobs, work)
    assert outcome.replicas == [THREE[1]]
    assert all(finished_record(job) for job in jobs)


def test_a_drawn_setting_is_recognised_to_the_last_digit(tmp_path: Path) -> None:
    (job,) = jobs = jobs_in(tmp_path, [replace(QUICK, lr=1 / 3001, epochs=1)])
    assert len(list(perform(TASK, jobs, tmp_path / "work"))) == 1
    assert finished_record(job)


def test_a_population_is_split_when_memory_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr(runs, "bytes_per_replica", lambda *_: free // 5)  # half of it: two fit
    outcomes = perform(TASK, jobs_in(tmp_path, THREE), tmp_path / "work")
    assert [len(outcome.replicas) for outcome in outcomes] == [2, 1]


def test_a_cut_off_job_keeps_its_populations(tmp_path: Path) -> None:
    jobs = jobs_in(tmp_path / "cut", THREE)
    work = tmp_path / "cut" / "work"

    def interrupt(step: int, steps: int) -> None:
        if step >= 9:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        list(
            perform(TASK, jobs, work, at_once=2, callbacks=lambda _: Callbacks(progress=interrupt))
        )
    assert sorted(path.suffix for path in work.iterdir()) == [".json", ".pt"]
    list(perform(TASK, jobs, work, at_once=3))  # there would be room for all now
    whole = jobs_in(tmp_path / "whole", THREE)
    list(perform(TASK, whole, tmp_path / "whole" / "work", at_once=2))
    for one, two in zip(jobs, whole, strict=True):
        records = [read_record(job.record) for job in (one, two)]
        assert records[0].curve == records[1].curve
        assert records[0].population == records[1].population
        assert read_probes(one.record) == read_probes(two.record) != {}


def test_models_are_files_that_build_themselves(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = TASK.model(QUICK).eval()
    save_model(tmp_path / "models" / "a.safetensors", TASK, QUICK, model, 0.5, {"sum": 0.25})
    save_model(tmp_path / "models" / "b.safetensors", TASK, QUICK, TASK.model(QUICK), 0.2)
    loaded, settings = load_model(tmp_path, TASK)  # of a run's folder, the best
    bits = torch.tensor([[0.0, 1.0, 1.0]])
    assert settings == QUICK and torch.equal(loaded(bits), model(bits))
    assert calibration_of(tmp_path) == {"sum": 0.25}
    assert calibration_of(tmp_path / "models" / "b.safetensors") == {}
    save_file({}, tmp_path / "older.safetensors")
    assert calibration_of(tmp_path / "older.safetensors") == {}
    save_file({}, tmp_path / "partly.safetensors", {"calibration": '{"a": 1.0, "b": null}'})
    assert calibration_of(tmp_path / "partly.safetensors") == {"a": 1.0}
    for odd in ("[1]", "{"):
        save_file({}, tmp_path / "odd.safetensors", {"calibration": odd})
        with pytest.raises(ModelError, match="calibration this dcgraph cannot read; train again"):
            calibration_of(tmp_path / "odd.safetensors")
    with pytest.raises(ModelError, match="no model"):
        load_model(tmp_path / "c.safetensors", TASK)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ModelError, match="holds no models"):
        load_model(empty, TASK)
    (tmp_path / "text.safetensors").write_text("hello, this is not it")
    with pytest.raises(ModelError, match="not a safetensors file"):
        load_model(tmp_path / "text.safetensors", TASK)


def test_an_evaluation_may_be_due_every_few_epochs() -> None:
    settings = replace(QUICK, epochs=5, evaluations=1, evaluate_every=2)
    outcome = train(Parity(), [settings], DATA)
    assert [look.epoch for look in outcome.curve] == [2, 4, 5]


def test_precision_monitor_and_size_of_evaluations_are_the_tasks() -> None:
    precisions, sizes = set(), set()

    class Asked(Parity):
        def execution(self, settings: ParitySettings) -> Execution:
            return Execution(monitor="error", precision="high", evaluated_at_once=14)

        def loss(self, model: nn.Module, batch: Batch) -> Tensor:
            precisions.add(torch.get_float32_matmul_precision())
            return super().loss(model, batch)

        def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
            assert torch.get_float32_matmul_precision() == "highest"
            sizes.add(len(batch["parity"]))
            return {"error": 1 - super().metrics(model, batch)["accuracy"]}

    outcome = train(Asked(), [QUICK, replace(QUICK, seed=1)], DATA)
    assert outcome.selected_by == Metric("error", "validation")
    assert "high" in precisions and sizes == {7, 2}


def test_calibration_comes_before_the_test_and_sees_only_the_validation_split() -> None:
    events: list[str] = []
    tested = torch.equal

    class Calibrated(Parity):
        def calibrate(
            self, model: nn.Module, settings: ParitySettings, data: Data
        ) -> dict[str, float]:
            events.append("calibrated")
            assert set(data.splits) == {"validation"}
            return {"offset": float(settings.seed)}

        def metrics(self, model: nn.Module, batch: Batch) -> dict[str, Tensor]:
            if tested(batch["bits"], DATA.table("test")["bits"]):
                events.append("tested")
            return super().metrics(model, batch)

        def final_metrics(
            self,
            model: nn.Module,
            settings: ParitySettings,
            data: Data,
            calibration: Mapping[str, float],
        ) -> Metrics:
            events.append("measured")
            assert not model.training and "test" in data.splits
            return {Metric("offset", decoder=None): calibration["offset"]}

    outcome = train(Calibrated(), THREE, DATA)
    assert events == [*["calibrated"] * 3, *["tested"] * 2, *["measured"] * 3]
    assert outcome.calibration == [{"offset": 0.0}, {"offset": 1.0}, {"offset": 2.0}]
    for record, seed in zip(make_records(TASK, outcome, DATA), range(3), strict=True):
        assert record.value(Metric("offset", decoder=None)) == record.calibration["offset"] == seed
    events.clear()
    without = DATA.only("train", "test")
    assert train(Parity(), THREE, without).calibration == [{}, {}, {}]


def test_a_record_of_other_settings_is_kept_and_named(tmp_path: Path) -> None:
    (job,) = jobs = jobs_in(tmp_path, [QUICK])
    list(perform(TASK, jobs, tmp_path / "work"))
    other = replace(job, settings=replace(QUICK, lr=0.5))
    record = finished_record(other)
    assert record is not None and differences(record, other.settings) == {"lr": (QUICK.lr, 0.5)}
    before = job.record.read_bytes()
    assert not list(perform(TASK, [other], tmp_path / "work"))
    assert job.record.read_bytes() == before
