"""Fleets of changes through the service: what the effect that is served says of the truth.

Each change is a canary in an environment of its own, half and half: events are posted every five
minutes. `GET /v1/reward/{id}/effect` is read after four hours and at the end, when it is final, and
the evidence of what was decided has the effect at that look. Beside the last stands the posterior
of the same sessions by a formula of its own: the kernel.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from benchmarks.calibration.reward.acting import DAYS, Acting, Fleet
from benchmarks.calibration.reward.population import FLEETS
from benchmarks.calibration.reward.reading import Reading
from benchmarks.report import options
from benchmarks.repository.private_service import PrivateService, private_service

_HOURS, FIRST = 24 * DAYS, 4
_SPREADS = np.array([0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5])
_WEIGHTS = np.array([0.25, 0.05, 0.10, 0.20, 0.20, 0.12, 0.06, 0.02])


def kernel(counts: np.ndarray[Any, Any]) -> float:
    """Returns the posterior mean of the relative effect, by docs/statistics.md, of one cell."""
    (n0, x0), (n1, x1) = counts.astype(float)
    n, m, w = n0 + n1, x0 + x1, n0 * n1 / (n0 + n1)
    score, variance = (x1 * n0 - x0 * n1) / n, w * m * (n - m) / (n * (n - 1))
    prior = np.maximum(_SPREADS**2, 1e-12)
    log = -0.5 * np.log1p(prior * variance) + score**2 * prior / (2 * (1 + prior * variance))
    weights = _WEIGHTS * np.exp(log - log.max())
    theta = (weights * prior * score / (1 + prior * variance)).sum() / weights.sum()
    difference = theta * variance / w
    return difference / (m / n - difference * n1 / n)


def served(fleets: Mapping[str, Any], count: int, *, an_hour: int, rate: float) -> list[str]:
    """Returns the rows of fleets, of so many changes each."""
    begin = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=DAYS + 1)
    settings = {
        "reward_days": DAYS,
        "horizon_days": DAYS,
        "guardrails": ["error"],
        "rate_limits": {"per_key": 10**9, "registrations_per_key": 10**6},
    }
    generator = np.random.default_rng(350)
    first: dict[str, float | None] = {}
    counts: dict[str, np.ndarray[Any, Any]] = {}
    with private_service(begin, **settings) as service:
        fleet = Fleet(service=service, now=begin, generator=generator, an_hour=an_hour, rate=rate)
        for draw in fleets.values():
            for truth in np.minimum(draw(generator, count), 0.95 / rate - 1).tolist():
                fleet.ship(truth, "close")
        for hour in range(1, _HOURS + 4):
            fleet.pass_hour(reads=hour == FIRST or hour % 24 == 0 or hour == _HOURS + 3)
            if hour == FIRST:
                first = {each.experiment: each.served.get("relative") for each in fleet.changes}
            if hour == _HOURS:
                counts = {each.experiment: each.counts.copy() for each in fleet.changes}
        decided = {each.experiment: _decided(service, each) for each in fleet.changes}
    numbers: dict[str, Callable[[Acting], float | None]] = {
        "effect at the first looks": lambda each: first[each.experiment],
        "effect at the decision": lambda each: decided[each.experiment],
        "effect at reward_at": lambda each: each.served["relative"],
        "the kernel of the same sessions": lambda each: kernel(counts[each.experiment]),
    }
    return [
        row
        for place, name in enumerate(fleets)
        for row in _rows(name, fleet.changes[place * count : (place + 1) * count], numbers)
    ]


def _decided(service: PrivateService, change: Acting) -> float | None:
    """Returns the effect at the look that decided; None of an abstention."""
    evidence = service.evidence(change.experiment)
    verdict = service.reward("GET", f"/{change.experiment}")["verdict"]
    effect = None if evidence is None or verdict == "abstain" else evidence.effect
    return None if effect is None else effect.relative


def _rows(
    name: str, changes: Sequence[Acting], numbers: Mapping[str, Callable[[Acting], float | None]]
) -> Iterator[str]:
    """Yields the table of a fleet."""
    yield from ("", f"| {name} | changes | slope | bias | root mean square error |")
    yield "| --- | --- | --- | --- | --- |"
    for number, read in numbers.items():
        pairs = [(read(each), each.truth) for each in changes]
        if any(effect is not None for effect, _ in pairs):
            yield Reading.of(pairs).row(number)
    yield f"({sum(each.served['final'] for each in changes)} of {len(changes)} are final)"


def main() -> None:
    chosen = options(__doc__)
    chosen.add_argument("--changes", type=int, default=24, help="of each fleet")
    chosen.add_argument("--without", nargs="*", default=[], choices=list(FLEETS))
    chosen.add_argument("--rate", type=float, default=0.7, help="of control")
    chosen.add_argument("--an-hour", type=int, default=75, help="sessions of a change")
    asked = chosen.parse_args()
    fleets = {name: draw for name, draw in FLEETS.items() if name not in asked.without}
    print(*served(fleets, asked.changes, an_hour=asked.an_hour, rate=asked.rate), sep="\n")  # noqa: T201


if __name__ == "__main__":
    main()
