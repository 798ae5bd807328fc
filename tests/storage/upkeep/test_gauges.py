"""Gauges: each tells what it says it does, and costs no more the more is stored."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import text

from orchestration.dagster.keys import PREFIX
from storage.postgres.dagster_schema import create_dagster_schema, dagster_url
from storage.releases.freeze import freeze
from storage.schema.partitions import create_days
from storage.upkeep.gauges import Gauges, read_gauges
from storage.upkeep.ticks import note_step

NOW = datetime.now(UTC)


@pytest.fixture
def gauges(service) -> Callable[[], Gauges]:
    return lambda: service.in_store(read_gauges)


def send(service: Any, commit: str | None, count: int, **members: Any) -> None:
    named = {} if commit is None else {"commit": commit}
    event = {"event": "page_view", "session_id": "s", **named, **members}
    assert service.post("/v1/events", {"events": [event] * count}).status_code == 202


def open_experiment(service: Any) -> str:
    service.deploy("a" * 40)
    service.deploy("b" * 40, base="a" * 40)
    experiment = service.register(target_metric="order")
    service.freeze()
    return experiment


def in_store(service: Any, *statements: str, **values: Any) -> None:
    for statement in statements:
        service.in_store(lambda c, statement=statement: c.execute(text(statement), values))


def test_a_new_store_has_nothing_to_tell(gauges) -> None:
    result = gauges()
    assert result.last_event_age_seconds is None
    assert result.unknown_commit_ratio is None
    assert result.walk_step_seconds == {}
    assert (result.walk_behind_seconds, result.verdict_overdue_seconds) == (0, 0)
    assert (result.open_experiments, result.unequal_days, result.failed_runs) == (0, 0, None)
    assert not result.frozen


def test_the_age_is_that_of_the_newest_event_whatever_days_there_are(service, gauges) -> None:
    send(service, None, 3)
    service.in_store(lambda c: create_days(c, [NOW.date() + timedelta(days=2)]))
    in_store(service, "UPDATE runtime_events SET received_at = received_at - interval '30 s'")
    assert 30 <= (gauges().last_event_age_seconds or 0) < 300
    send(service, None, 1)
    service.in_store(lambda c: freeze(c, "why"))
    result = gauges()
    assert (result.last_event_age_seconds or 0) < 30
    assert 0 < result.log_bytes < result.database_bytes
    assert result.frozen


def test_no_age_is_negative_after_a_clock_that_ran_ahead(service, gauges) -> None:
    service.in_store(lambda c: create_days(c, [NOW.date() + timedelta(days=1)]))
    send(service, None, 1)
    in_store(
        service,
        "UPDATE runtime_events SET received_at = date_trunc('day', now()) + interval '39 h'",
    )
    assert gauges().last_event_age_seconds == 0


class TestTheShareOfUnknownCommits:
    def test_is_that_of_events_which_name_one(self, service, gauges) -> None:
        service.deploy("a" * 40, base="c" * 40)
        send(service, "a" * 40, 2)
        send(service, "a" * 7, 2)
        send(service, "c" * 9, 2)
        send(service, "d" * 40, 2)
        send(service, None, 50)
        assert gauges().unknown_commit_ratio == 0.25

    def test_is_of_environments_with_a_deploy_and_of_the_end_of_a_log_however_long(
        self, service, gauges
    ) -> None:
        send(service, "d" * 40, 1, environment="preview")
        assert gauges().unknown_commit_ratio is None
        service.deploy("a" * 40)
        send(service, "d" * 40, 1)
        assert gauges().unknown_commit_ratio == 1
        in_store(
            service,
            "INSERT INTO runtime_events (project_id, environment, event, session_id, occurred_at,"
            " received_at, commit_sha, trusted) SELECT project_id, environment, event,"
            " session_id, occurred_at, received_at, repeat('a', 40), trusted"
            " FROM runtime_events, generate_series(1, 20000)",
        )
        assert gauges().unknown_commit_ratio == 0


class TestTheWalk:
    def test_is_told_with_its_steps(self, service, gauges) -> None:
        for stage, seconds in (("exposures", 9.0), ("exposures", 0.25), ("verdicts", 0.5)):
            service.in_store(partial(note_step, stage=stage, seconds=seconds))
        result = gauges()
        assert result.walk_step_seconds == {"exposures": 0.25, "verdicts": 0.5}
        assert result.seconds_since_last_tick is not None
        assert 0 <= result.seconds_since_last_tick < 60

    def test_is_behind_by_what_closed_and_is_in_no_verdict(self, service, gauges) -> None:
        experiment = open_experiment(service)
        assert gauges().open_experiments == 1
        assert gauges().walk_behind_seconds == 0
        in_store(
            service,
            "INSERT INTO publication_progress SELECT :id, at, at"
            " FROM date_bin('5 minutes', clock_timestamp() - interval '1 hour', 'epoch') AS at",
            id=experiment,
        )
        # The grace of two minutes has not passed; a block may close meanwhile.
        assert 3600 - 420 <= gauges().walk_behind_seconds <= 3600
        in_store(service, "UPDATE verdicts SET decided = true")
        assert (gauges().walk_behind_seconds, gauges().open_experiments) == (0, 0)


class TestAVerdict:
    @pytest.mark.parametrize(("unit_hours", "overdue"), [(1, 3), (5, 0)])
    def test_is_overdue_where_units_came_and_no_look_did(
        self, service, gauges, unit_hours, overdue
    ) -> None:
        experiment = open_experiment(service)
        assert gauges().verdict_overdue_seconds == 0
        in_store(
            service,
            "UPDATE verdicts SET next_look_at = clock_timestamp() - interval '3 hours'",
            "INSERT INTO cursors VALUES ('exposures', :id, clock_timestamp())",
            "INSERT INTO exposures (experiment_id, unit, exposed_at, block, arm, commit_sha, event)"
            " SELECT :id, 's', at, at, 0, 'a', 'view'"
            " FROM (SELECT extract(epoch FROM clock_timestamp() - make_interval(hours => :hours))"
            " * 1000000 AS at) AS x",
            id=experiment,
            hours=unit_hours,
        )
        assert int(gauges().verdict_overdue_seconds // 3600) == overdue


def test_failed_runs_are_ours_of_the_last_hour_that_dagster_keeps_beside(service, gauges) -> None:
    create_dagster_schema(service.store.url)
    kept = {"postgres": {"postgres_url": dagster_url(service.store.url)}}
    with dg.instance_for_test(overrides={"storage": kept}) as instance:
        assert gauges().failed_runs == 0
        started = dg.DagsterRunStatus.STARTED
        for ends, job in (
            (instance.report_run_failed, "deploy_reward_day"),
            (instance.report_run_canceled, "deploy_reward_day"),
            # In an instance that others share.
            (instance.report_run_failed, "nightly_models"),
        ):
            tags = {f"{PREFIX}/pool": "day"} if job.startswith(PREFIX) else {"team": "models"}
            ends(instance.add_run(dg.DagsterRun(job_name=job, status=started, tags=tags)))
        assert gauges().failed_runs == 1
        in_store(service, "UPDATE dagster.runs SET end_time = end_time - 7200")
        assert gauges().failed_runs == 0


def announce(service: Any, state: str) -> None:
    """An announcement of an hour ago, with a delivery that waits, or came to an end now."""
    experiment = open_experiment(service)
    in_store(
        service,
        "INSERT INTO announcements SELECT 'msg_1', project_id, experiment_id, 'decided', '',"
        " clock_timestamp() - interval '1 h', '{}', NULL, 'production', 'm', NULL"
        " FROM experiments WHERE experiment_id = :id",
        "INSERT INTO deliveries (announcement_id, target, next_attempt_at)"
        " VALUES ('msg_1', 'a', clock_timestamp())",
        id=experiment,
    )
    if state != "waiting":
        in_store(service, f"UPDATE deliveries SET {state}_at = clock_timestamp()")


@pytest.mark.parametrize(
    ("state", "waiting", "hours", "given_up"),
    [("waiting", 1, 1, 0), ("delivered", 0, 0, 0), ("given_up", 0, 0, 1)],
)
def test_a_webhook_waits_until_it_is_delivered_or_given_up(
    service, gauges, state, waiting, hours, given_up
) -> None:
    announce(service, state)
    result = gauges()
    assert result.undelivered_webhooks == waiting
    assert int(result.undelivered_webhook_age_seconds // 3600) == hours
    assert result.abandoned_webhooks == given_up
