"""The sensor that alerts the operators: a run of ours failed, or a check of ours."""

import asyncio
import json
import os
from dataclasses import asdict
from datetime import UTC, datetime

import dagster as dg

from domain.figures import counted
from orchestration.dagster.keys import PREFIX
from orchestration.dagster.upkeep.failures import (
    Cursor,
    FailedRun,
    Failures,
    cursor_now,
    failures_since,
)

_SLACK = "hooks.slack.com"
_ADDRESS = "SERVICE_ALERT_WEBHOOK"


class AlertNotSentError(RuntimeError):
    """The alert's receiver did not take it; the next tick sends it again."""


@dg.sensor(
    name=f"{PREFIX}_alert",
    # Without an address a tick does nothing, and costs some twenty connections to the store.
    minimum_interval_seconds=30 if os.environ.get(_ADDRESS) else 3_600,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Each half minute, where that is set: posts which runs and checks of ours failed"
    " to SERVICE_ALERT_WEBHOOK. Launches no run; an alert that cannot be sent fails the tick.",
)
def alert(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """Sends a single alert of all that failed since the last; where that fails, the next tick does.

    Dagster's `run_failure_sensor` moves its cursor on though its function raised, and looks at
    runs alone: an alert that met a receiver's bad minute would be lost, and a check's never sent.
    """
    url = os.environ.get(_ADDRESS)
    if not url:
        return dg.SensorResult(skip_reason="SERVICE_ALERT_WEBHOOK is not set")
    if not context.cursor:
        return _skipped("watching from now on", cursor_now(context.instance))
    failures, cursor = failures_since(context, json.loads(context.cursor))
    if not failures:
        return _skipped("nothing failed", cursor)
    _send(failures, url)
    return _skipped(f"alerted: {_counted(failures)} failed", cursor)


def _skipped(reason: str, cursor: Cursor) -> dg.SensorResult:
    return dg.SensorResult(skip_reason=reason, cursor=json.dumps(dict(cursor)))


def _send(failures: Failures, url: str) -> None:
    """Posts an alert; of the address an error tells the host alone."""
    from domain.document import document_text
    from orchestration.outbound.receiver import Unanswered, post
    from storage.tenants.webhook import Webhook

    try:
        receiver = Webhook(url=url)
    except ValueError as error:
        raise AlertNotSentError(f"SERVICE_ALERT_WEBHOOK: {error}") from None
    likely = "slack" if receiver.host == _SLACK else "raw"
    kind = os.environ.get("SERVICE_ALERT_FORMAT", likely)
    if kind not in {"raw", "slack"}:
        raise AlertNotSentError("SERVICE_ALERT_FORMAT is neither raw nor slack")
    document = _slack(failures) if kind == "slack" else _raw(failures)
    try:
        answer = asyncio.run(post(url, document_text(document).encode(), headers={}, private=True))
    except Unanswered as reason:
        raise AlertNotSentError(f"{receiver.host}: {reason}") from None
    if not answer.taken:
        raise AlertNotSentError(f"{receiver.host}: status {answer.status}")


def _raw(failures: Failures) -> dict[str, object]:
    from domain.document import time_text

    return {
        "type": f"{PREFIX}.alert",
        "timestamp": time_text(datetime.now(UTC)),
        "data": {
            "runs": [asdict(run) for run in failures.runs],
            "checks": [asdict(check) for check in failures.checks],
        },
    }


def _slack(failures: Failures) -> dict[str, str]:
    lines = [
        *(_run_line(run) for run in failures.runs),
        *(
            f"{check.asset}: {check.check} does not hold ({check.url or check.run_id})"
            for check in failures.checks
        ),
    ]
    return {"text": "\n".join([f"*deploy-reward: {_counted(failures)} failed*", *lines])}


def _counted(failures: Failures) -> str:
    counts = {"run": len(failures.runs), "check": len(failures.checks)}
    return " and ".join(counted(count, noun) for noun, count in counts.items() if count)


def _run_line(run: FailedRun) -> str:
    from orchestration.outbound.payload import slack_text

    where = f" at {run.step}" if run.step else ""
    why = f": {slack_text(run.error)}" if run.error else ""
    return f"{run.job}{where}{why} ({run.url or run.run_id})"
