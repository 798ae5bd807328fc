"""Wrong files: what each command, check and gauge says of a file that alone held its events."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import text

from cli.main import main
from cli.operations.audit import Exit
from cli.operations.forget import INCOMPLETE
from cli.operations.rebuild import LEFT_OUT
from orchestration.dagster.cells import REBUILT
from orchestration.dagster.sealed_log import SEALED
from orchestration.definitions import definitions
from storage.lake.comparison import compare_files
from storage.lake.hot_days import move_old_days
from storage.lake.lake import open_lake
from storage.lake.sealing import Sealer
from storage.upkeep.gauges import read_gauges
from tests.repetition import also_nightly
from tests.stores.derived import derived_of, served_of
from tests.stores.wrong_files import HARMS

NOW = datetime.now(UTC)
CHECKS = (SEALED, REBUILT)


@pytest.fixture
def lake(walked, monkeypatch, tmp_path) -> Path:
    """The three days of the canary, in the lake alone."""
    monkeypatch.setenv("SERVICE_LAKE", str(tmp_path / "lake"))
    assert Sealer(engine=walked.engine, lake=open_lake()).seal()
    with walked.engine.begin() as connection:
        assert compare_files(connection, open_lake()).different == []
        connection.execute(text("DELETE FROM replayed_days"))
    assert len(move_old_days(walked.engine, open_lake(), as_of=NOW, hot_days=1).moved) == 3
    return tmp_path / "lake"


def command(*words: str) -> Result:
    return CliRunner().invoke(main, [*words])


def checks(walked: Any, instance: Any) -> list[Any]:
    """Returns two results of checks; where an experiment cannot be computed, the run fails."""
    day = walked.first_day.date().isoformat()
    walked.run("deploy_reward_day", instance, day, raise_on_error=False)
    history = instance.event_log_storage.get_asset_check_execution_history
    latest = [history(key, limit=1)[0].event.dagster_event for key in CHECKS]
    return [event.asset_check_evaluation_data for event in latest]


def served(walked: Any) -> Any:
    return served_of(walked.engine), derived_of(walked.engine)


@pytest.mark.parametrize(
    "how", also_nightly(["fewer rows"], [how for how in HARMS if how != "fewer rows"])
)
def test_nothing_is_computed_of_a_wrong_file_and_whoever_needs_it_is_told(
    walked, instance, lake, how
) -> None:
    before = served(walked)
    _, _, _, wrong, _, other, *_ = sorted(lake.rglob("*.parquet"))
    right = wrong.read_bytes()
    HARMS[how](wrong, other)
    experiments = sorted(walked.experiments.values())

    past = command("evaluate", "--json", "--as-of", NOW.isoformat())
    assert (past.exit_code, past.stdout) == (Exit.NOT_COMPUTED, "[]\n")
    said = past.stderr.splitlines()
    assert [line.split(" ")[0] for line in said] == experiments
    assert all(f"was not computed: {wrong} " in line for line in said)

    audit = command("audit", experiments[0])
    assert audit.exit_code == Exit.NOT_COMPUTED
    assert str(wrong) in audit.stderr

    rebuild = command("rebuild")
    assert rebuild.exit_code == LEFT_OUT
    assert rebuild.stderr.count(f"{wrong.name} of the lake") == len(experiments)
    assert served(walked) == before

    sealed, rebuilt = checks(walked, instance)
    assert not sealed.passed
    assert wrong.name in sealed.metadata["files"].value
    assert not rebuilt.passed

    forgotten = command("forget", "--project", "shop", "--session", "s40")
    assert forgotten.exit_code == INCOMPLETE
    assert "left out wherever" in forgotten.stdout
    assert "NOT ERASED where a file is not as it is listed (1 file)" in forgotten.stdout
    night = definitions.resolve_job_def("deploy_reward_housekeeping")
    assert night.execute_in_process(instance=instance).success
    with walked.engine.begin() as connection:
        gauges = read_gauges(connection)
    assert gauges.lake_wrong_files == 1
    assert gauges.erasure_age_seconds > 0

    wrong.write_bytes(right)

    assert night.execute_in_process(instance=instance).success
    with walked.engine.begin() as connection:
        gauges = read_gauges(connection)
    assert (gauges.lake_wrong_files, gauges.erasure_age_seconds) == (0, 0)
    # Nothing differs but the member that made the canary live.
    audits = [command("audit", name).stdout.splitlines()[1:] for name in experiments]
    assert audits == [["  policy.retrospective: served false, raw true"]] * len(audits)
    assert served(walked)[0] == before[0]
