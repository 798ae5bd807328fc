"""The fast schedule: a run where anything is due, and none where no block holds a unit."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from domain.registration import Registration
from orchestration.dagster.keys import CLOSES_TAG, DUE_TAG
from orchestration.dagster.schedules import (
    NOTHING_DUE,
    UNDER_WAY,
    CronError,
    each_minute,
    fast_schedule,
)
from orchestration.definitions import definitions
from orchestration.pipeline.steps import close_cells, expose, publish, stage
from orchestration.pipeline.whole_days import LakeDays
from storage.experiments.experiments import register
from storage.schema.clock import claim_derived_tables
from storage.schema.partitions import create_days
from storage.tenants.projects import create_project
from storage.upkeep.gauges import read_gauges
from storage.upkeep.ticks import PIPELINE
from storage.verdicts.backlog import DueWork, due_work
from tests.processes.runs import tick
from tests.stores.pipeline_run import run_pipeline


@pytest.fixture
def instance(on_disk) -> dg.DagsterInstance:
    """Dagster's records on disk: a schedule opens them by their address."""
    return on_disk


def run_asked(canary: Any, instance: dg.DagsterInstance, **options: Any) -> Any:
    (request,) = tick(each_minute, canary.url, instance).run_requests
    return canary.run(
        "deploy_reward_fast", instance, request.partition_key, tags=request.tags, **options
    )


@pytest.fixture
def quiet(walked) -> Any:
    """The canary after a run; `view` alone is open, all of whose outcomes have closed."""
    # A block may have closed since that store was made, and what closes next is asked for.
    run_pipeline(walked.engine)
    walked.tamper(
        # No decided experiment is counted on.
        "UPDATE follow_ups SET state = 'stopped'",
        # Of `click` the effect was over at its first evaluation.
        "UPDATE publication_progress SET published_to = staged_to",
        "UPDATE verdicts SET decided = true WHERE experiment_id <> '{view}'",
        "UPDATE deploys SET recorded_at = deployed_at",
        # An analysis block ends by the clock once a day, in the hour of this test perhaps.
        "UPDATE next_looks SET forced_at = now() + interval '1 day'",
    )
    return walked


def earlier(minutes: int) -> str:
    """Makes the store say that it was read so much earlier, rather than wait."""
    back = f"- interval '{minutes} minutes'"
    return (
        f"UPDATE cursors SET at = at {back};"
        f"UPDATE next_looks SET units_since = units_since {back}, crowd_since = crowd_since {back};"
        f"UPDATE publication_progress"
        f" SET staged_to = staged_to {back}, published_to = published_to {back}"
    )


def event(*, commit: str = "'c0ffee0'", project: str = "project_id", received: str = "") -> str:
    """An event of a minute after what was read."""
    occurred = "published_to + interval '1 minute'"
    return (
        "INSERT INTO runtime_events (project_id, environment, event, session_id, occurred_at,"
        f" received_at, commit_sha, trusted) SELECT {project}, environment, 'page_view', 'new',"
        f" {occurred}, {received or occurred}, {commit}, false"
        " FROM experiments JOIN publication_progress USING (experiment_id)"
        " WHERE experiment_id = '{view}'"
    )


def reasons(canary: Any, *statements: str, minutes: float = 0.0) -> set[str]:
    """Why a run would be due after some statements, and some minutes; nothing of it stays."""
    with canary.engine.connect() as connection, connection.begin() as transaction:
        create_days(connection, {(datetime.now(UTC) - timedelta(hours=1)).date()})
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        for statement in statements:
            connection.execute(text(statement.format(**canary.experiments)))
        as_of = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
        due = due_work(connection, as_of=as_of + timedelta(minutes=minutes))
        transaction.rollback()
    return {reason for work in due for reason in work.reasons}


def test_a_tick_without_an_experiment_launches_no_run_and_says_why(store, instance) -> None:
    answer = tick(each_minute, store.url, instance)

    assert not answer.run_requests
    assert answer.skip_message == NOTHING_DUE


def test_a_tick_asks_for_a_run_that_says_why_and_ends_in_the_verdicts(
    canary, instance, today
) -> None:
    (request,) = tick(each_minute, canary.url, instance).run_requests

    assert request.partition_key == today
    assert "first evaluation: 3" in request.tags[DUE_TAG]

    canary.run("deploy_reward_fast", instance, today, tags=request.tags)

    assert canary.contract("click")["verdict"] == "keep"
    # A block may have closed meanwhile: the first after the deploy was recorded.
    assert reasons(canary) <= {"outcomes", "look", "deploy"}


def test_a_run_is_due_for_new_units_and_for_what_comes_whatever_the_traffic(quiet) -> None:
    of_view = "WHERE experiment_id = '{view}'"
    deploy = (
        "INSERT INTO deploys (deploy_id, project_id, environment, commit_sha, commit,"
        " base_assumed, deployed_at, recorded_at, affected_routes, affected_routes_complete,"
        " digest) SELECT 'd', project_id, environment, 'c', '{{}}', false,"
        f" now() - interval '40 minutes', now(), '{{{{}}}}', true, '' FROM experiments {of_view}"
    )
    aside = (
        "INSERT INTO set_aside (experiment_id, stage, error, first_failed_at, last_tried_at, tries)"
        " VALUES ('{view}', 'cells', 'NumericValueOutOfRange', now(), now() - interval '%s', 1)"
    )
    looked_to_now = (
        "INSERT INTO ticks (succeeded_at, looked_to) VALUES (now(), now())"
        " ON CONFLICT (place) DO UPDATE SET looked_to = now()"
    )
    outcomes = (
        "UPDATE block_units SET block = (SELECT extract(epoch FROM at) * 1000000"
        f" FROM cursors {of_view} AND stage = 'cells/view') {of_view}"
        f" AND block = (SELECT max(block) FROM block_units {of_view})"
    )
    five_earlier = "published_to = published_to - interval '5 minutes'"
    cases: list[tuple[str, list[str], set[str]]] = [
        ("nothing", [], set()),
        ("blocks without an event", [earlier(10)], set()),
        ("an event", [earlier(20), event()], {"new units"}),
        ("an event without a commit", [earlier(20), event(commit="NULL")], set()),
        ("an event of others", [earlier(20), event(project="project_id + 1")], set()),
        (
            "an event before the last look",
            [earlier(20), looked_to_now, event(received="now()")],
            set(),
        ),
        ("outcomes", [earlier(10), outcomes], {"outcomes"}),
        ("a look", [earlier(5), f"UPDATE next_looks SET forced_at = now() {of_view}"], set()),
        (
            "a look that has come",
            [earlier(5), f"UPDATE next_looks SET forced_at = now() - interval '8 min' {of_view}"],
            {"look"},
        ),
        ("closed by hand", ["UPDATE experiments SET closed_at = now()"], {"closed by hand"}),
        (
            "never evaluated",
            [f"DELETE FROM publication_progress {of_view}"],
            {"first evaluation", "new units"},
        ),
        (
            "broken off",
            [f"UPDATE publication_progress SET {five_earlier} {of_view}"],
            {"unfinished"},
        ),
        ("a deploy", [earlier(5), deploy], {"deploy"}),
        ("set aside lately", [earlier(20), aside % "20 seconds", event()], set()),
        ("set aside a while ago", [aside % "2 minutes"], {"set aside, tried again"}),
    ]
    named = {name: reasons(quiet, *statements) for name, statements, _ in cases}
    assert named == {name: expected for name, _, expected in cases}
    assert reasons(quiet, minutes=50) == set()


def test_blocks_without_a_unit_launch_no_run_and_leave_nothing_overdue(quiet, instance) -> None:
    quiet.tamper(
        earlier(50),
        "UPDATE verdicts SET next_look_at = next_look_at - interval '50 minutes' WHERE NOT decided",
    )
    assert tick(each_minute, quiet.url, instance).skip_message == NOTHING_DUE
    with quiet.engine.begin() as connection:
        assert read_gauges(connection).walk_behind_seconds < 600
        looks = connection.execute(
            text("SELECT next_look_at FROM verdicts WHERE NOT decided")
        ).scalars()
        assert all(look > datetime.now(UTC) for look in looks)


@pytest.mark.parametrize(
    ("tampering", "work"),
    [
        ("UPDATE experiments SET closed_at = now()", True),
        ("UPDATE experiments SET registered_at = now() - interval '29 days'", True),
        ("UPDATE experiments SET registered_at = now() - interval '27 days'", False),
    ],
)
def test_a_wait_without_a_deploy_ends_by_hand_or_after_four_weeks(
    store, instance, tampering, work
) -> None:
    with store.engine.begin() as connection:
        project_id = create_project(connection, "shop").project_id
        register(connection, project_id, Registration())
        connection.execute(text(tampering))

    assert bool(tick(each_minute, store.url, instance).run_requests) is work


# --- When ----------------------------------------------------------------------------------------


def test_a_block_that_closes_before_the_next_tick_is_asked_for_and_awaited(quiet) -> None:
    quiet.tamper("DELETE FROM next_looks WHERE experiment_id = '{view}'")
    with quiet.engine.begin() as connection:
        closes_at = connection.execute(
            text(
                "SELECT published_to + interval '5 minutes'"
                " + make_interval(secs => (policy ->> 'grace_seconds')::float)"
                " FROM publication_progress JOIN experiments USING (experiment_id)"
                " WHERE experiment_id = :view"
            ),
            quiet.experiments,
        ).scalar_one()
        a_second = timedelta(seconds=1)
        before = due_work(connection, as_of=closes_at - a_second)
        early = due_work(connection, as_of=closes_at - a_second, ahead=timedelta(minutes=1))
        late = due_work(connection, as_of=closes_at, ahead=timedelta(minutes=1))

    assert before == []
    assert early == [DueWork(reasons={"look": 1}, closes_at=closes_at)]
    assert late == [DueWork(reasons={"look": 1}, closes_at=None)]


def test_a_block_that_closes_first_waits_for_none_that_closes_later(quiet, instance) -> None:
    # The block closes 90 s from now by the grace of `view`, 150 s by the grace of `click`.
    graces = {"view": 210, "click": 150}
    quiet.tamper(
        "UPDATE verdicts SET decided = false WHERE experiment_id = '{click}'",
        "DELETE FROM next_looks",
        # As though it had been open all the time.
        "DELETE FROM cursors WHERE experiment_id = '{click}'",
        "INSERT INTO cursors SELECT stage, '{click}', at FROM cursors"
        " WHERE experiment_id = '{view}'",
        "DELETE FROM publication_progress WHERE experiment_id = '{click}'",
        "INSERT INTO publication_progress SELECT '{click}', staged_to, published_to"
        " FROM publication_progress WHERE experiment_id = '{view}'",
        earlier(minutes=5),
        *(
            "UPDATE experiments AS x SET policy = jsonb_set(policy, '{{grace_seconds}}', to_jsonb("
            f"floor(extract(epoch FROM now() - published_to)) - {seconds}))"
            " FROM publication_progress AS p WHERE p.experiment_id = x.experiment_id"
            f" AND x.experiment_id = '{{{name}}}'"
            for name, seconds in graces.items()
        ),
    )
    # The next five minutes hold a closing of each grace.
    at = datetime.now(UTC) + timedelta(minutes=4)
    requests = tick(each_minute, quiet.url, instance, at=at).run_requests
    closings = [datetime.fromisoformat(request.tags[CLOSES_TAG]) for request in requests]

    assert [request.tags[DUE_TAG] for request in requests] == ["look: 1", "look: 1"]
    assert (closings[1] - closings[0]).total_seconds() == graces["view"] - graces["click"]

    job = definitions.resolve_job_def("deploy_reward_fast")
    instance.create_run_for_job(job, tags=requests[0].tags, status=dg.DagsterRunStatus.STARTED)
    (second,) = tick(each_minute, quiet.url, instance, at=at).run_requests

    assert second.tags[CLOSES_TAG] == requests[1].tags[CLOSES_TAG]


@pytest.mark.nightly
def test_a_run_that_begins_before_its_block_closes_waits_for_it(canary, instance, today) -> None:
    closes_at = datetime.now(UTC) + timedelta(seconds=3)
    result = canary.run(
        "deploy_reward_fast", instance, today, tags={CLOSES_TAG: closes_at.isoformat()}
    )
    (step,) = result.asset_materializations_for_node("deploy_reward__exposures")

    assert step.metadata["read_to"].value >= closes_at.timestamp()


@pytest.mark.nightly
@pytest.mark.parametrize("stage", PIPELINE)
def test_a_run_that_broke_off_in_any_step_is_finished_by_the_next_tick(
    canary, instance, stage
) -> None:
    # A step notes that it ended outside of what it does for single experiments.
    canary.tamper(
        f"ALTER TABLE pipeline_steps ADD CONSTRAINT broken CHECK (stage <> '{stage}') NOT VALID"
    )
    broken = run_asked(canary, instance, raise_on_error=False)
    with canary.engine.begin() as connection:
        failed = read_gauges(connection).failed_ticks
    canary.tamper("ALTER TABLE pipeline_steps DROP CONSTRAINT broken")

    assert not broken.success
    assert {name: count for name, count in failed.items() if count} == {stage: 1}
    assert reasons(canary) & {"unfinished", "first evaluation"}
    assert run_asked(canary, instance).success
    assert canary.contract("click")["verdict"] == "keep"
    # A block may have closed meanwhile: the first after the deploy was recorded.
    assert reasons(canary) <= {"outcomes", "look", "deploy"}


def test_what_another_run_read_meanwhile_does_not_count_as_published(canary) -> None:
    with canary.engine.begin() as connection:
        expose(connection, LakeDays())
        close_cells(connection, LakeDays())
        stage(connection)
    canary.tamper("UPDATE cursors SET at = at + interval '5 minutes' WHERE stage = 'conversions'")
    with canary.engine.begin() as connection:
        publish(connection)
        ahead = connection.execute(
            text(
                "SELECT read.at - done.published_to FROM cursors AS read"
                " JOIN publication_progress AS done USING (experiment_id)"
                " JOIN verdicts USING (experiment_id)"
                " WHERE read.stage = 'conversions' AND NOT decided"
            )
        ).scalars()

    assert list(ahead) == [timedelta(minutes=5)] * 2


# --- Several at once -----------------------------------------------------------------------------


def test_a_tick_does_not_wait_for_a_run_that_writes(canary, instance) -> None:
    with canary.engine.begin() as other:
        claim_derived_tables(other)
        answer = tick(each_minute, canary.url, instance)

    assert not answer.run_requests
    assert answer.skip_message == UNDER_WAY
    assert reasons(canary)


def test_a_tick_asks_for_no_second_run_while_one_starts_and_waits_for_none_that_was_killed(
    store, instance
) -> None:
    with store.engine.begin() as connection:
        register(connection, create_project(connection, "shop").project_id, Registration())
        connection.execute(text("UPDATE experiments SET closed_at = now()"))
    job = definitions.resolve_job_def("deploy_reward_fast")
    waits: dict[tuple[dg.DagsterRunStatus, int], bool] = {
        (dg.DagsterRunStatus.QUEUED, 30): True,
        (dg.DagsterRunStatus.STARTING, 0): True,
        (dg.DagsterRunStatus.STARTED, 0): True,
        # As after a kill of all processes: the record says so for ever.
        (dg.DagsterRunStatus.STARTED, 2): False,
        (dg.DagsterRunStatus.STARTED, -39 * 60): False,
        (dg.DagsterRunStatus.FAILURE, 0): False,
    }
    waited: dict[tuple[dg.DagsterRunStatus, int], bool] = {}
    for status, minutes_ago in waits:
        run = instance.create_run_for_job(job)
        at = datetime.now(UTC).replace(tzinfo=None) - timedelta(minutes=minutes_ago)
        aged = text("UPDATE runs SET status = :status, create_timestamp = :at WHERE run_id = :id")
        bound = {"status": status.value, "at": at.isoformat(" "), "id": run.run_id}
        with instance.run_storage.connect() as connection:
            connection.execute(aged, bound)
        asked = tick(each_minute, store.url, instance)
        waited[status, minutes_ago] = asked.skip_message == UNDER_WAY
        assert bool(asked.run_requests) is not waited[status, minutes_ago]
        instance.delete_run(run.run_id)
    assert waited == waits


# --- What a tick leaves behind -------------------------------------------------------------------


def test_a_tick_without_a_store_fails_and_says_so(instance) -> None:
    with pytest.raises(dg.DagsterUserCodeExecutionError) as raised:
        tick(each_minute, "postgresql://nobody@127.0.0.1:1/none", instance)
    assert isinstance(raised.value.user_exception, OperationalError)


# --- Settings ------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.nightly
def test_a_slower_cron_is_taken_from_the_environment() -> None:
    assert each_minute.cron_schedule == "* * * * *"
    program = (
        "from orchestration.dagster.schedules import each_minute; print(each_minute.cron_schedule)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "SERVICE_FAST_CRON": "*/15 * * * *"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert loaded.stdout == "*/15 * * * *\n"


def test_what_is_no_cron_expression_is_refused_in_a_sentence() -> None:
    with pytest.raises(CronError, match="SERVICE_FAST_CRON is 'often': it must be a cron"):
        fast_schedule("often")


def test_a_run_is_due_for_units_after_a_decision_while_they_are_counted(quiet) -> None:
    decided = "UPDATE verdicts SET decided = true"
    running = "UPDATE follow_ups SET state = 'running', ends_at = now() + interval '3 days'"
    ended = "UPDATE follow_ups SET state = 'running', ends_at = now() - interval '3 days'"
    assert reasons(quiet, decided, earlier(20), event()) == set()
    assert reasons(quiet, decided, running, earlier(20), event()) == {"new units"}
    assert reasons(quiet, decided, running, earlier(20)) == set()
    assert reasons(quiet, decided, ended, earlier(20)) == {"end of a follow-up"}
