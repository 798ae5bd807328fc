"""Progress in information: what strata and ramps cost is in the sessions and the date."""

import numpy as np
import pytest

from benchmarks.calibration.many_flags.build import Build, correlated
from domain.metric import DAY
from domain.policy import Numbers
from stats.decision.evidence import Evidence, evaluate
from stats.sequential.mixture import Mixture
from stats.sequential.requirement import required_sessions

BLOCKS = 288
POLICY = Numbers(split_at=3.0)
MIXTURE = Mixture(rho=np.array([POLICY.rho]), log_threshold=np.array([POLICY.log_threshold]))


def alone(seen: Evidence) -> float:
    """The sessions that would be required in a single stratum, at a constant share."""
    treatment, control = seen.arms.treatment, seen.arms.control
    share = np.array([treatment.units / (treatment.units + control.units)])
    return float(required_sessions(np.array([control.rate]), share, np.array([0.2]), MIXTURE)[0])


def test_sessions_that_strata_cost_are_required() -> None:
    build = Build(draw=correlated, lifts=(0.0, 0.0), units=8000, days=2)
    (seen,) = build.evidence(np.random.default_rng(1), 0)
    n1, n0 = seen.arms.treatment.units, seen.arms.control.units
    cost = n1 * n0 / (n1 + n0) / seen.totals.W
    assert cost > 1.5
    assert seen.sessions.required == pytest.approx(cost * alone(seen), rel=0.02)


def ramp(first: int, then: int) -> list[tuple[int, ...]]:
    """A day with so many treated units of ten a block, and a day with so many; no effect."""
    rows: list[tuple[int, ...]] = []
    for block in range(2 * BLOCKS):
        treated = first if block < BLOCKS else then
        x1, x0 = (block % 10 == 0, 1) if treated == 1 else (block % 2, (block + 1) % 2)
        rows.append((block, 0, treated, int(x1), 10 - treated, x0))
    return rows


def test_sessions_of_a_ramp_come_at_what_its_share_of_today_brings(series) -> None:
    (seen,) = evaluate([series(ramp(1, 5), policy=POLICY, as_of=2 * DAY + 1920)])
    sessions = seen.sessions
    assert seen.as_of is not None
    n1, n0 = seen.arms.treatment.units, seen.arms.control.units
    needed = alone(seen) * n1 * n0 / (n1 + n0) ** 2
    # A session of today is worth a quarter: half of them are treated.
    to_come = (needed - seen.totals.W) / 0.25
    assert sessions.required == pytest.approx(sessions.accumulated + to_come)
    assert sessions.projected_decision_at is not None
    at = sessions.projected_decision_at.timestamp()
    assert at == pytest.approx(seen.as_of + to_come / 2880 * DAY, abs=2)
