"""A clock that ran ahead and is right again: ticks go on, in the process and after a restart."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    ScheduleInstigatorData,
    SensorInstigatorData,
    TickData,
    TickStatus,
)
from dagster._core.workspace.load import location_origin_from_module_name
from own_postgres.child_process import spawn

from orchestration.dagster.upkeep.future_ticks import put_back_future_ticks
from tests.conftest import Store
from tests.processes.api_process import eventually

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
AHEAD = timedelta(hours=39)
NOW = datetime(2028, 2, 29, 23, 59, 50, tzinfo=UTC)


def ticked(instance: dg.DagsterInstance, name: str, at: datetime) -> InstigatorState:
    """Has a sensor or schedule of a name a last tick at a time."""
    module = location_origin_from_module_name("orchestration.definitions", "definitions", None)
    origin = RemoteInstigatorOrigin(RemoteRepositoryOrigin(module, "__repository__"), name)
    time = at.timestamp()
    kind = InstigatorType.SENSOR if name.endswith("webhooks") else InstigatorType.SCHEDULE
    data = (
        ScheduleInstigatorData("* * * * *", start_timestamp=1.0, last_iteration_timestamp=time)
        if kind is InstigatorType.SCHEDULE
        else SensorInstigatorData(last_tick_timestamp=time, cursor="read to here")
    )
    state = InstigatorState(origin, kind, InstigatorStatus.DECLARED_IN_CODE, data)
    instance.add_instigator_state(state)
    instance.create_tick(
        TickData(
            instigator_origin_id=origin.get_id(),
            instigator_name=name,
            instigator_type=kind,
            status=TickStatus.SKIPPED,
            timestamp=time,
            selector_id=state.selector_id,
        )
    )
    return state


def last_tick(instance: dg.DagsterInstance, state: InstigatorState) -> datetime:
    (tick,) = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1)
    return datetime.fromtimestamp(tick.timestamp, UTC)


def test_ticks_of_ours_in_the_future_are_put_back_and_nothing_else() -> None:
    with dg.instance_for_test() as instance:
        names = ("deploy_reward_fast", "deploy_reward_webhooks")
        ours = [ticked(instance, name, NOW + AHEAD) for name in names]
        past = ticked(instance, "deploy_reward_alert", NOW - timedelta(days=1))
        others = ticked(instance, "nightly_day", NOW + AHEAD)
        assert sorted(put_back_future_ticks(instance, as_of=NOW)) == sorted(names)
        assert [last_tick(instance, state) for state in ours] == [NOW, NOW]
        stored = {state.instigator_name: state for state in instance.all_instigator_state()}
        schedule = stored["deploy_reward_fast"].instigator_data
        sensor = stored["deploy_reward_webhooks"].instigator_data
        assert sensor == SensorInstigatorData(
            last_tick_timestamp=NOW.timestamp(), cursor="read to here"
        )
        assert schedule == ScheduleInstigatorData(
            "* * * * *", start_timestamp=1.0, last_iteration_timestamp=NOW.timestamp()
        )
        assert stored["deploy_reward_alert"] == past
        assert stored["nightly_day"] == others
        assert last_tick(instance, others) == NOW + AHEAD
        assert put_back_future_ticks(instance, as_of=NOW) == []


# --- The daemon, under a clock that is set -----------------------------------------------------


class Clocked:
    """Dagster's daemon as we run it, whose clock a test sets."""

    def __init__(self, folder: Path, store: Store) -> None:
        (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n")
        (folder / "workspace.yaml").write_text(
            "load_from: [{python_module: {module_name: orchestration.definitions}}]\n"
        )
        # libfaketime 0.9.10 fails clock_nanosleep where it leaves the monotonic clock alone.
        (folder / "sitecustomize.py").write_text(
            "import threading, time\ntime.sleep = lambda seconds: threading.Event().wait(seconds)\n"
        )
        self.folder = folder
        self.log = folder / "log"
        self.clock = folder / "clock"
        self.env = {
            **os.environ,
            "DAGSTER_HOME": str(folder),
            "PYTHONPATH": str(folder),
            "SERVICE_DATABASE_URL": store.url,
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self.clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set_clock(self, ahead: timedelta) -> None:
        aside = self.clock.with_suffix(".new")
        aside.write_text(f"{ahead.total_seconds():+.0f}s\n")
        aside.replace(self.clock)

    def start(self) -> subprocess.Popen[bytes]:
        workspace = self.folder / "workspace.yaml"
        command = [sys.executable, "-m", "orchestration.daemon", "run", "-w", workspace]
        return spawn(command, log=self.log, env=self.env)

    def ticks(self) -> set[tuple[str, float]]:
        """Each tick by its name and how far it lies from the right time, in hours."""
        with dg.DagsterInstance.from_config(str(self.folder)) as instance:
            return {
                (state.instigator_name, round((tick.timestamp - time.time()) / 3600))
                for state in instance.all_instigator_state()
                for tick in instance.get_ticks(
                    state.instigator_origin_id, state.selector_id, limit=1
                )
            }


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.mark.deep
@pytest.mark.process
@pytest.mark.timeout(900)
@pytest.mark.skipif(
    LIBRARY is None, reason="there is no libfaketime (Debian: apt-get install faketime)"
)
@pytest.mark.parametrize("ahead", [AHEAD, timedelta(days=1)], ids=["39 hours", "a day"])
def test_the_daemon_ticks_within_a_minute_after_its_clock_was_set_back(
    store, tmp_path, ahead
) -> None:
    daemon = Clocked(tmp_path, store)
    hours = round(ahead.total_seconds() / 3600)
    daemon.set_clock(ahead)
    with ended(daemon.start()) as process:
        eventually(lambda: ("deploy_reward_fast", hours) in daemon.ticks(), seconds=240)
        daemon.set_clock(timedelta())
        assert process.wait(timeout=60) == 75, daemon.log.read_text()[-4000:]
    assert "the clock was set back by" in daemon.log.read_text()
    with ended(daemon.start()):
        eventually(lambda: ("deploy_reward_fast", 0) in daemon.ticks(), seconds=240)
    assert "the last tick of deploy_reward_fast lay in the future" in daemon.log.read_text()
