"""Keeps of a fleet of 500 changes a day: how many are false, and what the ledger says of them.

Three days of 24,000 units at 5 %, half and half, a look each half hour; a month of 15,000 changes.
With `--stands` each keep has to stand by the record of its day, which grows by the day.
It drives the functions of test, effect, record and ledger, no gates and no service.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from benchmarks.report import options, report
from domain.ledger.account import ledger_of
from domain.ledger.entry import Entry
from domain.policy import EFFECT_PRIOR, RECORD_DAYS, KeepRecord, Numbers
from stats.counts.cell import Floats, Totals, terms
from stats.decision.effect import Posterior, posterior_of
from stats.decision.learned import chances
from stats.decision.learned_prior import learned_prior
from stats.sequential.harm import log_harm
from stats.sequential.mixture import Mixture

LOOKS, PER_LOOK, BASE, AT_ONCE = 144, 500, 0.05, 1500
POLICY, LEARNED_FROM = Numbers(), 300
START = datetime(2026, 11, 1, tzinfo=UTC)
FLEETS: Mapping[str, Callable[[np.random.Generator, int], Floats]] = {
    "a tenth +20 %": lambda rng, n: np.where(rng.random(n) < 0.1, 0.2, 0.0),
    "a tenth N(0, 10 %)": lambda rng, n: np.where(rng.random(n) < 0.1, rng.normal(0, 0.1, n), 0.0),
    "a tenth N(0, 5 %)": lambda rng, n: np.where(rng.random(n) < 0.1, rng.normal(0, 0.05, n), 0.0),
    "all null": lambda _, n: np.zeros(n),
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A change at its answer, or at its last look.

    Attributes:
        log_e: Of its keep; None where it was not kept.
    """

    truth: float
    log_e: float | None
    effect: Posterior


def looked(truth: Floats, rng: np.random.Generator) -> tuple[Totals, Mixture]:
    """Returns the sums and the test of changes of true relative effects, change by look."""
    shape = (truth.size, LOOKS)
    n1, n0 = rng.poisson(PER_LOOK, (2, *shape))
    x1 = rng.binomial(n1, np.clip(BASE * (1 + truth), 0, 1)[:, None])
    x0 = rng.binomial(n0, BASE)
    cells = terms(*(column.ravel() for column in (n1, x1, n0, x0)))
    sums = np.cumsum(cells.reshape(-1, *shape), axis=2).reshape(cells.shape[0], -1)
    rho = np.tile(POLICY.rho, (truth.size * LOOKS, 1))
    limit = np.full(truth.size * LOOKS, POLICY.log_threshold)
    return Totals.from_rows(sums), Mixture(rho=rho, log_threshold=limit)


def outcomes(truth: Floats, rng: np.random.Generator) -> Iterator[Outcome]:
    """Yields each change of true relative effects, tested at all looks."""
    for begin in range(0, truth.size, AT_ONCE):
        part = truth[begin : begin + AT_ONCE]
        shape = (part.size, LOOKS)
        totals, mixture = looked(part, rng)
        log_e = mixture.log_e(totals.S, totals.V0)
        crossed = (log_e >= POLICY.log_threshold).reshape(shape)
        last = np.where(crossed.any(axis=1), crossed.argmax(axis=1), LOOKS - 1)
        rows = np.ravel_multi_index((np.arange(part.size), last), shape)
        for change, row in enumerate(rows.tolist()):
            now = totals[row : row + 1]
            effect = posterior_of(now, EFFECT_PRIOR, is_rate=True)
            assert effect is not None
            kept = log_e[row] >= POLICY.log_threshold and now.S[0] > 0
            yield Outcome(
                truth=float(part[change]), log_e=float(log_e[row]) if kept else None, effect=effect
            )


@dataclass(frozen=True, kw_only=True)
class Month:
    """A month of a fleet: its keeps, and what is said of them.

    Attributes:
        said: At most about so many are false, as the ledger says.
        fixed: The sum of the keeps' probabilities of harm and of no effect, by the fixed prior.
        learned: The same by the prior that the fleet taught.
    """

    fleet: str
    judged: int
    kept: int
    false: int
    said: float
    fixed: float
    learned: float


def month(fleet: str, changes: int, seed: int) -> Month:
    """Returns a month of changes, each decided as it is alone."""
    rng = np.random.default_rng(seed)
    seen = list(outcomes(FLEETS[fleet](rng, changes), rng))
    keeps = [each for each in seen if each.log_e is not None]
    taught = [(each.effect.observed, each.effect.observed_error) for each in seen[:LEARNED_FROM]]
    prior = learned_prior(taught, EFFECT_PRIOR)
    by_learned = [
        chances(each.effect.observed, each.effect.observed_error, prior) for each in keeps
    ]
    return Month(
        fleet=fleet,
        judged=changes,
        kept=len(keeps),
        false=sum(each.truth <= 0 for each in keeps),
        said=ledger_of(
            [_entry(number, each) for number, each in enumerate(seen)], as_of=START
        ).expected_false,
        fixed=sum(sum(each.effect.chances) for each in keeps),
        learned=sum(map(sum, by_learned)),
    )


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A fleet whose keeps have to stand.

    Attributes:
        changes_at: From which day on no change has an effect.
    """

    name: str
    per_day: int
    days: int
    draw: Callable[[np.random.Generator, int], Floats]
    changes_at: int | None = None


STANDS = (
    Fleet(name="a tenth +20 %", per_day=200, days=70, draw=FLEETS["a tenth +20 %"]),
    Fleet(
        name="the same, all null from day 40 on",
        per_day=200,
        days=70,
        draw=FLEETS["a tenth +20 %"],
        changes_at=40,
    ),
    Fleet(name="N(0, 5 %)", per_day=200, days=70, draw=lambda rng, n: rng.normal(0, 0.05, n)),
    Fleet(name="all null", per_day=200, days=70, draw=FLEETS["all null"]),
    Fleet(
        name="2 a day, a fifth +20 %",
        per_day=2,
        days=365,
        draw=lambda rng, n: np.where(rng.random(n) < 0.2, 0.2, 0.0),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Stood:
    """The keeps of a fleet: those that stood in time, and those that hold alone."""

    fleet: str
    kept: int
    false: int
    alone: int
    false_alone: int
    true: int


def stood(fleet: Fleet, seed: int) -> Stood:
    """Returns the keeps of the days of a fleet."""
    rng = np.random.default_rng(seed)
    truth = fleet.draw(rng, fleet.per_day * fleet.days)
    begun = np.repeat(np.arange(fleet.days), fleet.per_day)
    if fleet.changes_at is not None:
        truth[begun >= fleet.changes_at] = 0.0
    kept_on = np.full(truth.size, -1)
    alone = np.zeros(truth.size, dtype=np.bool_)
    ended = np.zeros(truth.size, dtype=np.bool_)
    crossed, gains, a_day = (*np.empty((2, truth.size, LOOKS)), LOOKS // 3)
    for day in range(fleet.days):
        own = np.flatnonzero(begun == day)
        totals, mixture = looked(truth[own], rng)
        log_e = mixture.log_e(totals.S, totals.V0).reshape(own.size, LOOKS)
        side = np.sign(totals.S).reshape(own.size, LOOKS)
        crossed[own] = np.where(log_e >= POLICY.log_threshold, side, 0)
        gains[own] = log_harm(totals.S, totals.V0, mixture.rho).reshape(own.size, LOOKS)
        first = (crossed[own] != 0).argmax(axis=1)
        alone[own] = np.take_along_axis(crossed[own], first[:, None], axis=1)[:, 0] > 0
        window = (begun < day) & (begun >= day - RECORD_DAYS)
        record = KeepRecord(
            day=(START + timedelta(days=day)).date(),
            judged=int(window.sum()),
            kept=int((window & (kept_on >= 0) & (kept_on < day)).sum()),
        )
        for age in range(3):
            now = np.flatnonzero((begun == day - age) & ~ended)
            looks = slice(age * a_day, (age + 1) * a_day)
            stands = gains[now, looks] >= np.log(record.needed)
            keeps, worse = (crossed[now, looks] > 0) & stands, crossed[now, looks] < 0
            answered = keeps | worse
            at = answered.argmax(axis=1)
            is_kept = answered.any(axis=1) & keeps[np.arange(now.size), at]
            kept_on[now[is_kept]] = day
            ended[now[answered.any(axis=1)]] = True
    kept = kept_on >= 0
    return Stood(
        fleet=fleet.name,
        kept=int(kept.sum()),
        false=int((kept & (truth <= 0)).sum()),
        alone=int(alone.sum()),
        false_alone=int((alone & (truth <= 0)).sum()),
        true=int((truth > 0).sum()),
    )


def _entry(number: int, change: Outcome) -> Entry:
    kept = change.log_e is not None
    return Entry(
        experiment_id=f"{number:05d}",
        metric="order",
        treatment_commit=None,
        title=None,
        actor=None,
        log_e=change.log_e,
        claimed=None,
        at_decision=None,
        after_decision=None,
        harm=None,
        no_effect=None,
        verdict="keep" if kept else "abstain",
        at=START - timedelta(minutes=number),
        level=POLICY.level,
        followed=None,
        measured_error=None,
        asked_at=START - timedelta(days=3, minutes=number),
        decided=True,
        changes=1,
        outcome=None,
        units=None,
    )


def main() -> None:
    chosen = options(__doc__)
    chosen.add_argument("--changes", type=int, default=15_000)
    chosen.add_argument("--seed", type=int, default=51)
    chosen.add_argument("--stands", action="store_true")
    asked = chosen.parse_args()
    if asked.stands:
        shown_stood = {
            "fleet": lambda row: row.fleet,
            "kept": lambda row: str(row.kept),
            "false": lambda row: f"{row.false} ({row.false / max(row.kept, 1):.3f})",
            "alone": lambda row: str(row.alone),
            "false alone": lambda row: f"{row.false_alone} ({row.false_alone / row.alone:.3f})",
            "better": lambda row: str(row.true),
        }
        every = [stood(fleet, asked.seed) for fleet in STANDS]
        report(every, shown_stood, lines=asked.lines, caption="keeps that have to stand")
        return
    rows = [month(fleet, asked.changes, asked.seed) for fleet in FLEETS]
    shown = {
        "fleet": lambda row: row.fleet,
        "judged": lambda row: f"{row.judged:,}",
        "kept": lambda row: str(row.kept),
        "false": lambda row: str(row.false),
        "said, at most about": lambda row: f"{row.said:.1f}",
        "by the fixed prior": lambda row: f"{row.fixed:.1f}",
        "by the learned": lambda row: f"{row.learned:.1f}",
    }
    report(rows, shown, lines=asked.lines, caption="a month of 500 changes a day")


if __name__ == "__main__":
    main()
