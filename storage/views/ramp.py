"""The ramp of an experiment: the steps of its treatment, and the units of each arm over time."""

import math
from datetime import datetime, timedelta
from itertools import accumulate

from sqlalchemy import Connection, text

from domain.drawing.traffic import Ramp, Step
from domain.policy import Policy, UnreadablePolicyError

# A page shows no finer periods.
_MOST_PERIODS = 120
_MOST_STEPS = 24
_BLOCK = timedelta(minutes=5)


_POLICY = text("""
SELECT target_metric AS metric, starts_at, policy FROM experiments
WHERE experiment_id = :experiment_id AND policy IS NOT NULL
""")

_UNITS = text("""
SELECT date_bin(CAST(:period AS interval), block, CAST(:since AS timestamptz)) AS begins_at,
    sum(n0)::bigint AS control, sum(n1)::bigint AS treatment
FROM cells_in_words
WHERE experiment_id = :experiment_id AND metric = :metric AND block <= :until
GROUP BY begins_at ORDER BY begins_at
""")

_STEPS = text("""
SELECT deployed_at AS at, allocation AS share FROM (
    SELECT d.deployed_at, d.recorded_at, d.allocation FROM deploys AS d
    JOIN experiments AS x ON x.project_id = d.project_id AND x.environment = d.environment
        AND x.treatment_commit = d.commit_sha
    WHERE x.experiment_id = :experiment_id AND d.allocation IS NOT NULL
      AND d.withdrawn_at IS NULL AND d.deployed_at <= :until
    ORDER BY d.deployed_at DESC, d.recorded_at DESC LIMIT :limit
) AS newest
ORDER BY deployed_at, recorded_at
""")


def read_ramp(connection: Connection, experiment_id: str, *, until: datetime) -> Ramp | None:
    """Returns an experiment's ramp up to a look; None before it begins, or for a broken policy."""
    bound = {"experiment_id": experiment_id}
    experiment = connection.execute(_POLICY, bound).one_or_none()
    if experiment is None:
        return None
    since = experiment.starts_at
    try:
        after = timedelta(seconds=Policy.of(experiment.policy).numbers.closes_after)
    except UnreadablePolicyError:
        # An experiment whose policy is broken is set aside; its page says so.
        return None
    blocks = max(until - after - since, _BLOCK) / _BLOCK / _MOST_PERIODS
    units = {
        "metric": experiment.metric,
        "since": since,
        "until": until - after - _BLOCK,
        "period": _BLOCK * math.ceil(blocks),
    }
    rows = connection.execute(_UNITS, {**bound, **units}).all()
    steps = {"until": until, "limit": _MOST_STEPS}
    return Ramp(
        at=[min(row.begins_at + units["period"] + after, until) for row in rows],
        control=list(accumulate(row.control for row in rows)),
        treatment=list(accumulate(row.treatment for row in rows)),
        steps=[
            Step(at=row.at, share=row.share)
            for row in connection.execute(_STEPS, {**bound, **steps})
        ],
    )
