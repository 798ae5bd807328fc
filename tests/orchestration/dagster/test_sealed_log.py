"""The asset of the sealed log: hours become files, files are compared, a failure stops nothing."""

import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner
from sqlalchemy import text

from cli.main import main
from orchestration.dagster.keys import EXPOSURES, SEALED_LOG
from orchestration.dagster.sealed_log import SEALED
from orchestration.definitions import definitions
from storage.upkeep.gauges import read_gauges


@pytest.fixture
def lake(tmp_path, monkeypatch) -> Path:
    # A quote in a folder's name is a folder like any other.
    folder = tmp_path / "the team's lake"
    monkeypatch.setenv("SERVICE_LAKE", str(folder))
    return folder


def sealed(canary: Any, instance: dg.DagsterInstance, *, day: int = 0) -> Any:
    """A run of the asset, its check and the exposures that follow it, of the first day."""
    return definitions.resolve_job_def("deploy_reward_day").execute_in_process(
        instance=instance,
        partition_key=day_of(canary, day),
        asset_selection=[SEALED_LOG, EXPOSURES],
        raise_on_error=False,
    )


def metadata(result: Any) -> dict[str, Any]:
    (event,) = result.asset_materializations_for_node("deploy_reward__sealed_log")
    return {name: value.value for name, value in event.metadata.items()}


def day_of(canary: Any, day: int) -> str:
    return (canary.first_day + timedelta(days=day)).date().isoformat()


def checks(result: Any) -> dict[str, Any]:
    evaluations = result.get_asset_check_evaluations()
    return {each.partition: each for each in evaluations if each.check_name == SEALED.name}


def check(result: Any) -> Any:
    return next(iter(checks(result).values()))


def test_a_run_seals_what_has_ended_and_tells_of_its_day(canary, instance, lake) -> None:
    result = sealed(canary, instance)

    entries = metadata(result)
    with canary.engine.begin() as connection:
        events = connection.execute(text("SELECT count(*) FROM runtime_events")).scalar_one()
        of_day = connection.execute(
            text("SELECT count(*) FROM runtime_events WHERE received_at < :end"),
            {"end": canary.first_day + timedelta(days=1)},
        ).scalar_one()
    assert entries["rows_sealed_now"] == events
    assert entries["dagster/partition_row_count"] == of_day
    assert entries["hours"] == 24
    assert entries["hours_waiting"] == 0
    assert entries["bytes"] == sum(
        path.stat().st_size for path in (lake / f"{canary.first_day:%Y-%m-%d}").iterdir()
    )
    assert check(result).passed
    assert check(result).metadata["compared"].value > 24


def test_a_seal_that_fails_stops_nothing_and_doctor_and_gauges_name_it_until_it_passes(
    canary, instance, lake
) -> None:
    lake.write_text("a file stands where the folder should be")
    result = sealed(canary, instance)
    assert result.asset_materializations_for_node("deploy_reward__exposures")
    assert "FileExistsError" in check(result).metadata["error"].value
    doctor = CliRunner().invoke(main, ["doctor", "--project", "shop"])
    with canary.engine.begin() as connection:
        failing = read_gauges(connection)

    assert doctor.exit_code == 1
    assert re.search(r"✗\s+log sealed.*FileExistsError", doctor.stdout, re.DOTALL)
    # A project's keys are not the operator's: the folder is shown by Dagster alone.
    assert lake.name not in doctor.stdout
    assert failing.unsealed_hours > 24

    lake.unlink()
    assert check(sealed(canary, instance)).passed
    with canary.engine.begin() as connection:
        passed = read_gauges(connection)
    assert "log sealed" not in CliRunner().invoke(main, ["doctor", "--project", "shop"]).stdout
    assert passed.unsealed_hours == 0
    assert passed.lake_bytes == sum(path.stat().st_size for path in lake.rglob("*.parquet"))


def evaluated(until: datetime) -> Any:
    """What the command tells as of a time."""
    as_of = ["--as-of", until.isoformat()]
    return CliRunner().invoke(main, ["evaluate", *as_of, "--json", "--evidence"])


@pytest.mark.usefixtures("lake")
@pytest.mark.nightly
def test_evaluate_and_audit_read_sealed_files_and_without_the_lake_postgresql(
    walked, instance, tmp_path, monkeypatch
) -> None:
    until = walked.first_day + timedelta(days=1)
    before = evaluated(until)
    sealed(walked, instance)
    assert before.exit_code == 0
    with monkeypatch.context() as in_another_shell:
        in_another_shell.setenv("SERVICE_LAKE", str(tmp_path / "elsewhere"))
        assert evaluated(until).stdout == before.stdout

    # Of a sealed hour files alone are read: a row that is wrong there is not seen.
    walked.tamper("UPDATE runtime_events SET event = 'other'")
    assert evaluated(until).stdout == before.stdout
    assert len(json.loads(before.stdout)) == 3
    audited = CliRunner().invoke(main, ["audit", walked.experiments["click"]])
    assert (audited.exit_code, audited.stdout[-19:]) == (0, "equal to the byte.\n")
