"""Counts: what the derived tables hold of units and cells, by experiment."""

from collections.abc import Sequence
from datetime import date
from typing import Any

from sqlalchemy import Connection, Row, text

_UNITS = text("""
SELECT u.experiment_id, sum(u.treatment)::bigint AS treatment, sum(u.control)::bigint AS control,
    sum(u.partial + u.in_flight + u.excluded)::bigint AS others,
    (
        SELECT c.at FROM cursors AS c
        WHERE c.stage = 'exposures' AND c.experiment_id = u.experiment_id
    ) AS read_to
FROM block_units AS u
JOIN verdicts AS v USING (experiment_id)
WHERE NOT v.decided
GROUP BY u.experiment_id
ORDER BY sum(u.treatment + u.control + u.partial + u.in_flight + u.excluded) DESC, u.experiment_id
""")


def units_by_experiment(connection: Connection) -> Sequence[Row[Any]]:
    """Returns the exposed units of each open experiment that has any, the most first.

    Returns:
        Rows of experiment_id, treatment, control, others (units of neither arm) and read_to.
    """
    return connection.execute(_UNITS).all()


_DAYS = text("""
SELECT x.experiment_id, c.metric, count(*) AS cells, sum(c.n1) AS treatment_units,
    sum(c.x1) AS treatment_conversions, sum(c.n0) AS control_units, sum(c.x0) AS control_conversions
FROM cells AS c JOIN experiments AS x USING (experiment_id)
WHERE c.block >= CAST(:first AS date)::timestamptz
  AND c.block < CAST(:last AS date)::timestamptz + interval '1 day'
GROUP BY x.experiment_id, c.metric
ORDER BY x.experiment_id, c.metric
""")


def cells_of_days(connection: Connection, first: date, last: date) -> Sequence[Row[Any]]:
    """Returns the sums of some days' cells, a row for each experiment and metric.

    Returns:
        Rows of experiment_id, metric, cells, treatment_units, treatment_conversions, control_units,
        control_conversions.
    """
    return connection.execute(_DAYS, {"first": first, "last": last}).all()
