"""`simulate`: live traffic comes as it occurs, and is counted as the service stores it."""

import io
import json
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from canary_traffic.canary import Scenario, Traffic, traffic
from canary_traffic.posting import Refused, connected
from canary_traffic.simulate import Summary, sent
from click.testing import CliRunner
from rich.console import Console
from sqlalchemy import text

from cli.main import main
from storage.tenants.keys import KeyKind
from tests.cli.conftest import serving
from tests.processes.api_process import eventually


@pytest.mark.process
def test_an_interrupt_ends_with_the_summary_of_all_that_was_sent(service) -> None:
    words = ("--live", "--hours", "1", "--sessions-per-day", "5000000", "--json")
    count = text("SELECT count(*) FROM runtime_events")

    def stored() -> int:
        return service.in_store(lambda connection: connection.execute(count).scalar_one())

    with serving(service) as url:
        command = [sys.executable, "-m", "cli", "simulate", *words, "--api-url", url]
        process = subprocess.Popen(
            [*command, "--key", key(service)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            eventually(stored)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    answer = json.loads(output)
    assert process.returncode == 128 + signal.SIGINT
    assert answer["interrupted"]
    assert answer["accepted"] == answer["events"] == stored() > 0


def one_second(
    service: Any, sessions: int, delay: timedelta, **members: Any
) -> tuple[Traffic, Summary]:
    """Sends a second of live traffic of which half converts, and returns it with its record."""
    start = datetime.now(UTC)
    scenario = Scenario(
        start=start,
        end=start + timedelta(seconds=1),
        control="c0ffee0",
        treatment="bada550",
        sessions_per_day=sessions * 86_400,
        baseline=0.5,
        delay=delay,
        **members,
    )
    run = traffic(scenario, np.random.default_rng(3))
    with serving(service) as url, connected(url) as client:
        return run, sent(client, run, key=key(service), replay=False, console=nowhere())


def test_live_traffic_comes_as_it_occurs_with_its_late_events(service) -> None:
    late = {"late": 0.3, "lateness": timedelta(seconds=2)}
    run, answer = one_second(service, 60, timedelta(seconds=0.5), **late)
    assert not answer.interrupted
    assert answer.document["accepted"] == answer.document["events"] == len(run)
    held = text("SELECT received_at - occurred_at FROM runtime_events")
    delays = service.in_store(lambda connection: connection.execute(held).scalars().all())
    assert len(delays) == len(run)
    assert min(delays) >= timedelta(0)
    assert np.mean([delay >= timedelta(seconds=2) for delay in delays]) > 0.1


def test_the_truth_of_the_sample_is_what_the_service_stored(service) -> None:
    service.settings(sample_rate=0.5)
    run, answer = one_second(service, 100, timedelta(seconds=0.1))
    assert answer.document["accepted"] + answer.document["sampled_out"] == len(run)
    assert answer.sample is not None
    counted = text(
        "SELECT commit_sha, count(DISTINCT session_id) AS units,"
        " count(*) FILTER (WHERE event = 'activation') AS conversions"
        " FROM runtime_events GROUP BY commit_sha"
    )
    rows = service.in_store(lambda connection: connection.execute(counted).all())
    stored = {row.commit_sha: (row.units, row.conversions) for row in rows}
    truth = run.truth(answer.sample)
    assert 20 < sum(arm.units for arm in truth.values()) < 80
    assert stored == {
        "c0ffee0": (truth["control"].units, truth["control"].conversions),
        "bada550": (truth["treatment"].units, truth["treatment"].conversions),
    }


def key(service: Any) -> str:
    return service.project.keys[KeyKind.WRITE]


def nowhere() -> Console:
    return Console(file=io.StringIO())


def test_a_refusal_ends_live_traffic_before_the_next_batch_is_due(service) -> None:
    start = datetime.now(UTC)
    hourly = Scenario(
        start=start,
        end=start + timedelta(days=1),
        control="c0ffee0",
        treatment="bada550",
        sessions_per_day=24,
    )
    first = traffic(hourly, np.random.default_rng(1)).arrived[0]
    # The first session has just come; the next will in an hour.
    shift = timedelta(seconds=first + 1)
    just_begun = replace(hourly, start=start - shift, end=hourly.end - shift)
    run = traffic(just_begun, np.random.default_rng(1))
    reward = service.project.keys[KeyKind.PROJECT]
    with serving(service) as url, connected(url) as client, pytest.raises(Refused, match="403"):
        sent(client, run, key=reward, replay=False, console=nowhere())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--key", "pk_1"], "--replay needs the write key (wk_...)"),
        (["--deploys", "--key", "pk_1"], "--replay and --deploys need the write key (wk_...)"),
        (["--key", "rk_1"], "is a project key (rk_...)"),
    ],
)
def test_a_key_of_another_kind_is_refused_before_anything_is_sent(words, message) -> None:
    answer = CliRunner().invoke(main, ["simulate", *words])
    assert answer.exit_code == 2
    assert message in " ".join(answer.output.split())
    assert words[words.index("--key") + 1] not in answer.output
