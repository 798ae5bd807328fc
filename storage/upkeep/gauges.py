"""Gauges: the health of the whole service as numbers of the store, at a bounded cost."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from sqlalchemy import Connection, text

from storage.log.status import read_sealing
from storage.postgres.dagster_schema import DAGSTER_SCHEMA
from storage.postgres.engine import SCHEMA
from storage.schema.encoding import epoch_microseconds
from storage.schema.policy_columns import GRACE, HORIZON, TARGET_OPEN_FOR
from storage.upkeep.event_commits import event_commits, newest_partitions
from storage.upkeep.ticks import PIPELINE, TICK_STAGES

# How much of the log's end is looked at: some thousand events, however many there are in all.
_TAIL_PAGES = 128
# Whoever invents commit ids must not make the look-up of each of them a cost.
_MOST_COMMITS = 500

_TICKS = text("""
SELECT (SELECT extract(epoch FROM clock_timestamp() - succeeded_at)::float FROM ticks)
        AS seconds_since_last_tick,
    (SELECT count(*) FROM set_aside) AS experiments_set_aside,
    coalesce((
        SELECT json_build_object(
            x.experiment_id, extract(epoch FROM clock_timestamp() - x.bound_at)::float
        )
        FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
        WHERE x.bound_at IS NOT NULL AND x.frozen_at IS NULL AND x.cannot_start IS NULL
          AND NOT v.decided
        ORDER BY x.bound_at, x.experiment_id LIMIT 1
    ), '{}') AS freeze_wait_seconds,
    coalesce((SELECT json_object_agg(stage, failures) FROM failed_ticks), '{}') AS failed_ticks,
    coalesce((SELECT json_object_agg(name, NOT passed) FROM check_results), '{}') AS check_failed
""")


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """How the service fares, by the store's clock; no figure is of a single project.

    Prometheus is served each member under its name with its description, those of several entries
    by a label; None is not served.
    """

    last_event_age_seconds: Annotated[
        float | None, Meta(description="Since the newest runtime event was received.")
    ]
    # Among a thousand events of the last hour where deploys are recorded; named bases are known.
    unknown_commit_ratio: Annotated[
        float | None,
        Meta(description="Share of the newest events that name a commit which was never deployed."),
    ]
    walk_behind_seconds: Annotated[
        float,
        Meta(
            description="Closed and not yet in a verdict, for the open experiment that is furthest"
            " behind."
        ),
    ]
    verdict_overdue_seconds: Annotated[
        float,
        Meta(
            description="Since when the most overdue look of an open experiment with traffic is"
            " due."
        ),
    ]
    seconds_since_last_tick: Annotated[
        float | None,
        Meta(
            description="Since a tick of the fast schedule had nothing to do, or a run of the"
            " pipeline ended well."
        ),
    ]
    experiments_set_aside: Annotated[
        int, Meta(description="Experiments whose own data breaks a stage; all others go on.")
    ]
    freeze_wait_seconds: Annotated[
        dict[str, float],
        Meta(
            description="Since when the experiment waits for its policy that waits longest.",
            extra={"label": "experiment"},
        ),
    ]
    open_experiments: Annotated[int, Meta(description="Experiments with a deploy and no decision.")]
    unequal_days: Annotated[
        int,
        Meta(description="Days of the last 90 that, computed anew, were not equal to what stands."),
    ]
    # None where the records of Dagster are not in this database.
    failed_runs: Annotated[
        int | None, Meta(description="Runs of ours in Dagster that failed within the last hour.")
    ]
    undelivered_webhooks: Annotated[int, Meta(description="Webhooks that wait for an attempt.")]
    undelivered_webhook_age_seconds: Annotated[
        float, Meta(description="Since the oldest of these was announced; 0 where there is none.")
    ]
    abandoned_webhooks: Annotated[int, Meta(description="Webhooks given up within the last day.")]
    frozen: Annotated[bool, Meta(description="Whether the service is frozen by hand.")]
    database_bytes: Annotated[int, Meta(description="Disk that the database takes.")]
    log_bytes: Annotated[
        int, Meta(description="Disk that the runtime events take, with their indexes.")
    ]
    unsealed_hours: Annotated[
        int,
        Meta(description="Hours of receipt that have ended and are in no file of the lake yet."),
    ]
    lake_bytes: Annotated[int, Meta(description="What the listed files of the lake take.")]
    lake_wrong_files: Annotated[
        int,
        Meta(description="Files of the lake that are not as they are listed, and are not read."),
    ]
    erasure_age_seconds: Annotated[
        float,
        Meta(
            description="Since the oldest erasure that is not written out of all files yet; 0 where"
            " there is none."
        ),
    ]
    walk_step_seconds: Annotated[
        dict[str, float],
        Meta(
            description="How long each step of the pipeline took the last time.",
            extra={"label": "step"},
        ),
    ]
    failed_ticks: Annotated[
        dict[str, int],
        Meta(
            description="Ticks of the fast schedule and steps of runs that an error ended, ever.",
            extra={"label": "stage"},
        ),
    ]
    check_failed: Annotated[
        dict[str, bool],
        Meta(
            description="Whether a check of Dagster's failed the last time.",
            extra={"label": "check"},
        ),
    ]


def read_gauges(connection: Connection, patience_seconds: float = 2.0) -> Gauges:
    """Returns how the service fares.

    Reads the end of the log, a row an open experiment, and the catalog: nothing that grows with
    the stored history.

    Args:
        connection: In a transaction of its own.

    Raises:
        sqlalchemy.exc.OperationalError: A query took longer.
    """
    connection.execute(
        text("SELECT set_config('statement_timeout', :patience, true)"),
        {"patience": f"{int(patience_seconds * 1000)}ms"},
    )
    last_event, unknown_commits = _latest_events(connection)
    steps = {row.stage: row.seconds for row in connection.execute(_STEPS)}
    sealing = read_sealing(connection)
    read: dict[str, Any] = {}
    for query in (_PROGRESS, _TICKS, _NOTES, _OUTBOX, _SIZE):
        read |= connection.execute(query).mappings().one()
    failed_ticks = dict.fromkeys(TICK_STAGES, 0) | read.pop("failed_ticks")
    return Gauges(
        last_event_age_seconds=last_event,
        unknown_commit_ratio=unknown_commits,
        failed_runs=_failed_runs(connection),
        unsealed_hours=sealing.waiting_hours,
        lake_bytes=sealing.lake_bytes,
        lake_wrong_files=sealing.wrong_files,
        erasure_age_seconds=sealing.oldest_erasure_seconds,
        walk_step_seconds={name: steps[name] for name in PIPELINE if name in steps},
        failed_ticks=failed_ticks,
        **read,
    )


_LATEST = """
-- Events are appended, hence the last pages of the newest day hold the newest ones.
WITH tail AS MATERIALIZED (
    SELECT project_id, environment, commit_sha, max(received_at) AS newest,
        count(*) FILTER (WHERE received_at > clock_timestamp() - interval '1 hour') AS events
    FROM {partition}
    WHERE ctid >= '({page},0)'::tid
    GROUP BY project_id, environment, commit_sha
), named AS (
    SELECT * FROM tail WHERE commit_sha IS NOT NULL AND events > 0
    ORDER BY events DESC LIMIT :limit
), newest AS (
    -- Received under a clock that ran ahead, an event has no age yet.
    SELECT greatest(0, extract(epoch FROM clock_timestamp() - max(newest)))::float AS seconds
    FROM tail
)
SELECT newest.seconds, n.project_id, n.environment, n.commit_sha, n.events
FROM newest LEFT JOIN named AS n ON EXISTS (
    SELECT FROM commits AS c
    WHERE c.project_id = n.project_id AND c.environment = n.environment
)
"""


def _latest_events(connection: Connection) -> tuple[float | None, float | None]:
    """Returns the age of the newest event, and the share of those of an unknown commit."""
    for name, pages in newest_partitions(connection, limit=1).items():
        query = _LATEST.format(partition=name, page=max(0, pages - _TAIL_PAGES))
        rows = connection.execute(text(query), {"limit": _MOST_COMMITS}).all()
        events = {
            (row.project_id, row.environment, row.commit_sha): row.events
            for row in rows
            if row.events is not None
        }
        known = event_commits(connection, events.keys()).known
        unknown = sum(count for named, count in events.items() if named not in known)
        return rows[0].seconds, unknown / sum(events.values()) if events else None
    return None, None


_STEPS = text("SELECT stage, seconds FROM pipeline_steps")

# An experiment is overdue only if it had units in the last two hours.
_RECENT = epoch_microseconds("o.exposed_to - interval '2 hours'")
_PROGRESS = text(f"""
WITH progress AS MATERIALIZED (
    SELECT x.experiment_id, exposed.at AS exposed_to,
        least(
            date_bin('5 minutes', clock_timestamp() - p.grace, 'epoch'),
            -- Past this nothing is read: see exposures.
            date_bin('5 minutes', x.starts_at + p.horizon + p.target_open_for, 'epoch')
        ) - greatest(
            coalesce(done.published_to, greatest(x.bound_at, x.starts_at)),
            -- What a tick found to hold no unit waits for nobody.
            date_bin('5 minutes', (SELECT looked_to FROM ticks) - p.grace, 'epoch')
        ) AS behind,
        clock_timestamp() - coalesce(
            v.next_look_at,
            greatest(x.bound_at, x.starts_at + interval '5 minutes' + p.target_open_for + p.grace)
        ) AS overdue
    FROM verdicts AS v
    JOIN experiments AS x USING (experiment_id)
    CROSS JOIN LATERAL (
        SELECT {GRACE} AS grace, {HORIZON} AS horizon, {TARGET_OPEN_FOR} AS target_open_for
    ) AS p
    -- The marks of the pipeline's first step and of its last.
    LEFT JOIN cursors AS exposed
      ON exposed.stage = 'exposures' AND exposed.experiment_id = x.experiment_id
    LEFT JOIN publication_progress AS done ON done.experiment_id = x.experiment_id
    WHERE NOT v.decided AND x.frozen_at IS NOT NULL
      -- Whoever is set aside has a gauge of their own.
      AND NOT EXISTS (SELECT FROM set_aside AS s WHERE s.experiment_id = x.experiment_id)
), overdue AS MATERIALIZED (
    -- As good as none, while all goes well: only of these is it asked whether they have traffic.
    SELECT * FROM progress WHERE overdue > interval '10 minutes'
)
SELECT count(*) AS open_experiments,
    greatest(0, extract(epoch FROM max(behind)))::float AS walk_behind_seconds,
    coalesce((
        SELECT extract(epoch FROM max(o.overdue)) FROM overdue AS o
        WHERE EXISTS (
            SELECT FROM exposures AS e
            WHERE e.experiment_id = o.experiment_id AND e.block >= {_RECENT}
        )
    ), 0)::float AS verdict_overdue_seconds
FROM progress
""")

_NOTES = text("""
SELECT (
    SELECT count(*) FROM self_checks WHERE NOT equal AND day > current_date - 90
) AS unequal_days, EXISTS (
    SELECT FROM freezes WHERE unfrozen_at IS NULL
) AS frozen
""")

_HAS_RUNS = text("SELECT to_regclass(:runs) IS NOT NULL")

# Each run of our jobs has a tag of ours, and each of our assets that has begun.
_FAILED_RUNS = text(f"""
SELECT count(*) FROM {DAGSTER_SCHEMA}.runs AS r
WHERE r.status = 'FAILURE' AND r.end_time > extract(epoch FROM clock_timestamp()) - 3600
  AND EXISTS (
    SELECT FROM {DAGSTER_SCHEMA}.run_tags AS t
    WHERE t.run_id = r.run_id AND t.key LIKE '{SCHEMA}/%'
)
""")


def _failed_runs(connection: Connection) -> int | None:
    if not connection.execute(_HAS_RUNS, {"runs": f"{DAGSTER_SCHEMA}.runs"}).scalar_one():
        return None
    return connection.execute(_FAILED_RUNS).scalar_one()


_OUTBOX = text("""
SELECT w.*, (
    SELECT count(*) FROM deliveries WHERE given_up_at > clock_timestamp() - interval '1 day'
) AS abandoned_webhooks
FROM (
    SELECT count(*) AS undelivered_webhooks,
        coalesce(extract(epoch FROM clock_timestamp() - min(a.announced_at)), 0)::float
            AS undelivered_webhook_age_seconds
    FROM deliveries AS d JOIN announcements AS a USING (announcement_id)
    WHERE d.delivered_at IS NULL AND d.given_up_at IS NULL
) AS w
""")

_SIZE = text(f"""
SELECT pg_database_size(current_database()) AS database_bytes,
    (SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint
     FROM pg_partition_tree(to_regclass('{SCHEMA}.runtime_events'))) AS log_bytes
""")
