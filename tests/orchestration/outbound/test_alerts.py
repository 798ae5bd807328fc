"""Alerts: what failed of ours is posted, once it is taken, with nothing secret in it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import dagster as dg
import pytest

from orchestration.dagster.checks import no_keep_with_a_breach, source_lag_is_under_the_grace
from orchestration.dagster.upkeep.alerts import AlertNotSentError, alert
from orchestration.outbound.redaction import redacted
from tests.clients.receiver import Receiver, receiving

CANARY = "hunter2-canary"


@pytest.fixture
def receiver(monkeypatch) -> Iterator[Receiver]:
    with receiving() as running:
        monkeypatch.setenv("SERVICE_ALERT_WEBHOOK", f"{running.url}/T0canary")
        yield running


@dataclass(kw_only=True)
class Watch:
    """An instance of Dagster, and the sensor's ticks on it, each from where the last got to."""

    instance: dg.DagsterInstance
    cursor: str | None = field(default=None)

    def tick(self) -> str:
        with dg.build_sensor_context(instance=self.instance, cursor=self.cursor) as context:
            tick = alert.evaluate_tick(context)
        self.cursor = tick.cursor or self.cursor
        assert tick.skip_message is not None
        assert not tick.run_requests
        return tick.skip_message

    def fail(self, name: str, message: str = "it broke", tags: dict[str, str] | None = None) -> str:
        @dg.op
        def breaks() -> None:
            raise RuntimeError(message)

        @dg.job(name=name, tags=tags)
        def failing() -> None:
            breaks()

        return failing.execute_in_process(instance=self.instance, raise_on_error=False).run_id

    def check(self, fact: dg.AssetChecksDefinition, *, passed: bool, error: bool = True) -> str:
        severity = dg.AssetCheckSeverity.ERROR if error else dg.AssetCheckSeverity.WARN
        key = fact.check_key

        @dg.asset(key=key.asset_key, check_specs=[dg.AssetCheckSpec(key.name, asset=key.asset_key)])
        def checked() -> dg.MaterializeResult:
            result = dg.AssetCheckResult(passed=passed, severity=severity, check_name=key.name)
            return dg.MaterializeResult(check_results=[result])

        return dg.materialize([checked], instance=self.instance).run_id


@pytest.fixture
def watch() -> Iterator[Watch]:
    with dg.DagsterInstance.ephemeral() as instance:
        watch = Watch(instance=instance)
        watch.fail("deploy_reward_fast")
        assert watch.tick() in {"watching from now on", "SERVICE_ALERT_WEBHOOK is not set"}
        yield watch


def test_a_failed_run_of_ours_is_told_once_with_its_step_and_error_and_a_link(
    receiver, watch, monkeypatch
) -> None:
    monkeypatch.setenv("SERVICE_DAGSTER_URL", "https://dagster.shop.example/")
    run_id = watch.fail("deploy_reward_day", "the disk is full\nand more")
    assert watch.tick() == "alerted: 1 run failed"
    assert watch.tick() == "nothing failed"
    (got,) = receiver.got
    assert got.document["type"] == "deploy_reward.alert"
    assert got.document["data"] == {
        "runs": [
            {
                "job": "deploy_reward_day",
                "run_id": run_id,
                "step": "breaks",
                "error": "RuntimeError: the disk is full",
                "url": f"https://dagster.shop.example/runs/{run_id}",
            }
        ],
        "checks": [],
    }


def test_a_run_of_somebody_else_or_that_dagster_tries_again_and_a_warning_are_not_told(
    receiver, watch
) -> None:
    watch.fail("nightly_report")
    watch.fail("reward_deploy")
    watch.fail("deploy_reward_fast", tags={"dagster/will_retry": "true"})
    watch.check(source_lag_is_under_the_grace, passed=False, error=False)
    assert watch.tick() == "nothing failed"
    assert receiver.got == []


def test_a_failed_materialization_of_our_assets_from_the_ui_is_told(receiver, watch) -> None:
    @dg.asset(key=["deploy_reward", "verdicts"])
    def verdicts() -> None:
        raise RuntimeError("it broke")

    @dg.asset
    def theirs() -> None:
        raise RuntimeError("it broke")

    definitions = dg.Definitions(assets=[verdicts, theirs])
    for key in (["theirs"], ["deploy_reward", "verdicts"]):
        definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=watch.instance, asset_selection=[dg.AssetKey(key)], raise_on_error=False
        )
    assert watch.tick() == "alerted: 1 run failed"
    assert receiver.got[0].document["data"]["runs"][0]["step"] == "deploy_reward__verdicts"


def test_a_fact_that_does_not_hold_is_told_though_its_run_succeeded(receiver, watch) -> None:
    watch.check(no_keep_with_a_breach, passed=True)
    assert watch.tick() == "nothing failed"
    run_id = watch.check(no_keep_with_a_breach, passed=False)
    assert watch.tick() == "alerted: 1 check failed"
    assert watch.tick() == "nothing failed"
    assert receiver.got[0].document["data"]["checks"] == [
        {
            "check": "no_keep_with_a_breach",
            "asset": "deploy_reward/verdicts",
            "run_id": run_id,
            "url": None,
        }
    ]


def test_an_alert_that_is_not_taken_fails_the_tick_and_is_sent_by_the_next(receiver, watch) -> None:
    run_id = watch.fail("deploy_reward_fast")
    receiver.answer(500)
    with pytest.raises(AlertNotSentError, match="status 500") as refused:
        watch.tick()
    assert "T0canary" not in str(refused.value)
    watch.check(no_keep_with_a_breach, passed=False)
    assert watch.tick() == "alerted: 1 run and 1 check failed"
    assert receiver.got[-1].document["data"]["runs"][0]["run_id"] == run_id


def test_slack_is_told_in_lines(receiver, watch, monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_ALERT_FORMAT", "slack")
    first = watch.fail("deploy_reward_fast", "1 < 2")
    second = watch.check(no_keep_with_a_breach, passed=False)
    watch.tick()
    assert receiver.got[0].document == {
        "text": "*deploy-reward: 1 run and 1 check failed*\n"
        f"deploy_reward_fast at breaks: RuntimeError: 1 &lt; 2 ({first})\n"
        f"deploy_reward/verdicts: no_keep_with_a_breach does not hold ({second})"
    }


def test_without_an_address_nothing_is_looked_at(watch) -> None:
    watch.fail("deploy_reward_fast")
    assert watch.tick() == "SERVICE_ALERT_WEBHOOK is not set"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            f"cannot reach postgresql://reward:{CANARY}@db.internal:5432/reward?x={CANARY} now",
            "cannot reach postgresql://db.internal:5432/… now",
        ),
        (
            f"posting to https://hooks.slack.com/services/{CANARY}",
            "posting to https://hooks.slack.com/…",
        ),
        (f"host=db password={CANARY} user=reward", "host=db password=… user=reward"),
        (f'invalid input for type json: "{CANARY}"', 'invalid input for type json: "…"'),
        (f"key wk_{CANARY.replace('-', '')} is odd", "key wk_… is odd"),
        (f"with {CANARY} in it", "with … in it"),
    ],
)
def test_an_error_s_line_is_told_without_what_is_secret(line, shown) -> None:
    environment = {"SERVICE_DATABASE_URL": f"postgresql://reward:{CANARY}@db/reward"}
    assert redacted(line, environment) == shown


def test_a_secret_of_the_environment_is_told_to_nobody(receiver, watch, monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_SECRET", "correct horse battery")
    watch.fail(
        "deploy_reward_fast",
        f"no: {os.environ['SERVICE_SECRET']}; {os.environ['SERVICE_ALERT_WEBHOOK']}",
    )
    watch.tick()
    assert receiver.got[0].document["data"]["runs"][0]["error"] == "RuntimeError: no: …; …"
