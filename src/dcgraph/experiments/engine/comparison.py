"""Tables that compare the gradient estimators of a task: rows come from the names there are.

All estimators train alike: the same steps, batches and learning rate, with and without DropRes and
TempMatch. Only tau is chosen, of the same values for all, on the validation split with seeds of its
own; what a table shows is the test of fresh seeds. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import get_args

from ..._arguments import EstimatorName
from .metrics import Metric
from .records import Record
from .settings import Settings
from .tables import Choice, Column, Row, Run, Table, per_cent

ESTIMATORS: tuple[EstimatorName, ...] = get_args(EstimatorName)
METHODS = {
    "neither": (False, False),
    "DropRes": (True, False),
    "TempMatch": (False, True),
    "both": (True, True),
}
"""With DropRes or not, with TempMatch or not; without it beta is constant."""

TAUS = (1.0, 4.0)
"""What tau is chosen of."""

TUNING_SEEDS, FRESH_SEEDS = 2, 4

PLANE: dict[str, EstimatorName] = {
    "relaxed": "gumbel_softmax",
    "hard": "straight_through_gumbel_softmax",
}
"""The estimators of the plane: of a relaxed choice, and of a hard one with a relaxed gradient."""

PLANE_TAUS = (0.5, 1.0, 2.0, 4.0, 8.0)
PLANE_BETAS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
BETAS: tuple[float | None, ...] = (*PLANE_BETAS, None)  # None: TempMatch, where it grows to tau
PLANE_SEEDS = 3


@dataclass(frozen=True)
class Comparison:
    """What is compared on a task.

    Attributes:
        task: its name.
        settings: what all runs have in common.
        metric: what is shown, in per cent.
        subject: the task in a few words, to begin a title with.
    """

    task: str
    settings: Settings
    metric: Metric
    subject: str

    def estimators(self) -> Table:
        """A row for each estimator that the task can take, a column for each of METHODS."""
        refused = refusals(self.settings)
        rows = tuple(self._row(name) for name in ESTIMATORS if name not in refused)
        taus = " or ".join(f"{tau:g}" for tau in TAUS)
        without = " ".join(f"Without {name}: {why}" for name, why in refused.items())
        return Table(
            name=f"estimators-{self.task}",
            task=self.task,
            title=(
                f"{self.subject}: {self.metric.name} of each gradient estimator, in per cent. Tau "
                f"is {taus}, what {TUNING_SEEDS} seeds say is best on the validation split; shown "
                f"is the test of {FRESH_SEEDS} fresh ones.{' ' if without else ''}{without}"
            ),
            rows=rows,
            columns=(
                *(Column(m, _of(m, per_cent(self.metric)), "test", 1) for m in METHODS),
                *(Column(m, _of(m, _tau), "chosen tau", 0, spread=False) for m in METHODS),
                Column("seconds a run", _of("both", seconds), digits=1, spread=False),
            ),
        )

    def _row(self, estimator: EstimatorName) -> Row:
        choices = []
        for dropres, tempmatch in METHODS.values():
            settings = replace(
                self.settings, estimator=estimator, dropres=dropres, tempmatch=tempmatch
            )
            tried = (run_of(replace(settings, tau=tau), TUNING_SEEDS) for tau in TAUS)
            choices.append(Choice(tuple(tried), FRESH_SEEDS))
        return Row(estimator, runs=(), choices=tuple(choices))

    def plane(self) -> Table:
        """Rows of tau, columns of beta and TempMatch, for a relaxed and a hard choice."""
        residual = "with" if self.settings.dropres else "without"
        return Table(
            name=f"plane-{self.task}",
            task=self.task,
            title=(
                f"{self.subject}: {self.metric.name} with constant tau (rows) and beta (columns), "
                f"and with TempMatch, where beta grows to tau; {residual} DropRes, in per "
                "cent."
            ),
            rows=tuple(
                Row(
                    f"tau {tau:g}",
                    tuple(
                        plane_run(self.settings, estimator, tau, beta)
                        for estimator in PLANE.values()
                        for beta in BETAS
                    ),
                )
                for tau in PLANE_TAUS
            ),
            columns=tuple(
                Column(
                    "TempMatch" if beta is None else f"beta {beta:g}",
                    _where(estimator, beta, per_cent(self.metric)),
                    part,
                    1,
                )
                for part, estimator in PLANE.items()
                for beta in BETAS
            ),
        )


def plane_run(settings: Settings, estimator: EstimatorName, tau: float, beta: float | None) -> Run:
    """With constant tau and beta, or with TempMatch if beta is None.

    The seeds are the first fresh ones of the estimators, which so have some of these runs, too.
    """
    at = replace(settings, estimator=estimator, tau=tau, tempmatch=beta is None)
    run = run_of(at if beta is None else replace(at, beta=beta), PLANE_SEEDS)
    return replace(run, first=TUNING_SEEDS)


def refusals(settings: Settings) -> dict[str, str]:
    """The estimators that a task's settings refuse, and what they say.

    >>> refusals(Settings())
    {}
    """
    found: dict[str, str] = {}
    for name in ESTIMATORS:
        try:
            replace(settings, estimator=name)
        except ValueError as error:
            found[name] = str(error)
    return found


def run_of(settings: Settings, seeds: int) -> Run:
    """Named by what is compared, so that tables which need the same runs share their records."""
    beta = "tempmatch" if settings.tempmatch else f"beta-{settings.beta:g}"
    parts = [settings.estimator.replace("_", "-"), f"tau-{settings.tau:g}", beta]
    if not settings.dropres:
        parts.append("no-dropres")
    return Run("-".join(["compare", *parts]), settings, seeds)


def seconds(record: Record) -> float:
    """A run's share of the time of the population that it was trained in."""
    return record.seconds / record.population.size


_Value = Callable[[Record], float | None]


def _of(method: str, value: _Value) -> _Value:
    """A number of the runs with a method; None for all others."""
    return lambda record: value(record) if method_of(record.settings) == method else None


def method_of(settings: Mapping[str, object]) -> str:
    both = settings["dropres"], settings["tempmatch"]
    return next(name for name, switches in METHODS.items() if switches == both)


def _tau(record: Record) -> float:
    return float(record.settings["tau"])


def _where(estimator: str, beta: float | None, value: _Value) -> _Value:
    """A number of the runs of an estimator at this beta, of TempMatch if it is None."""

    def found(record: Record) -> float | None:
        own = record.settings
        at = None if own["tempmatch"] else own["beta"]
        return value(record) if (own["estimator"], at) == (estimator, beta) else None

    return found
