"""A lake of another store, or of a later state of it: nobody reads it, and nothing of it goes."""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import make_url

from cli.main import main
from cli.processes.dagster_home import claim_folders
from orchestration.definitions import definitions
from storage.lake.lake import open_lake
from storage.lake.sealed_hours import listed_files
from storage.lake.sealing import Sealer
from tests.conftest import fresh_store
from tests.repetition import also_nightly

REASONS = {
    "another": "is another store's: name this store's",
    "later": "was written by a later state of the store, or a copy: restore both of a time",
    "empty": "is empty or not mounted, and the store lists files in it: put them back",
}
DAGSTER = ("dagster", "--port", "0")
READERS = {
    "evaluate": ("evaluate", "--as-of", "{until}"),
    "audit": ("audit", "{experiment}"),
    "rebuild": ("rebuild",),
    "forget": ("forget", "--session", "s1", "-p", "shop", "--yes"),
}


@pytest.fixture
def restored(walked, postgres_url, monkeypatch, tmp_path) -> Iterator[Any]:
    """The store as it was before it sealed its days, beside the lake that it sealed them into."""
    monkeypatch.setenv("SERVICE_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("SERVICE_DATA_DIR", str(tmp_path / "data"))
    walked.engine.dispose()
    with fresh_store(postgres_url, make_url(walked.url).database or "") as copy:
        # A fresh store names a lake of its own.
        monkeypatch.setenv("SERVICE_LAKE", str(tmp_path / "lake"))
        assert Sealer(engine=walked.engine, lake=open_lake()).seal()
        # Old enough to be swept where no list names them.
        for path in (tmp_path / "lake").rglob("*.parquet"):
            os.utime(path, (0, 0))
        yield replace(walked, url=copy.url, engine=copy.engine)


@pytest.fixture
def wrong(walked, restored, request, monkeypatch, tmp_path) -> tuple[str, Any, Path]:
    """A store beside a lake that is not its own, and what is wrong with that."""
    store = restored if request.param == "later" else walked
    monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
    if request.param == "another":
        store.tamper("UPDATE installation SET identity = gen_random_uuid()")
    if request.param == "empty":
        (tmp_path / "lake").rename(tmp_path / "unmounted")
    return request.param, store, tmp_path / "lake"


def command(store: Any, *words: str) -> Result:
    names = {
        "until": f"{store.first_day:%Y-%m-%d}T12:00:00Z",
        "experiment": store.experiments["click"],
    }
    return CliRunner().invoke(main, [word.format(**names) for word in words])


def files(lake: Path) -> list[Path]:
    return sorted(lake.rglob("*.*"))


@pytest.mark.parametrize("wrong", REASONS, indirect=True)
def test_a_lake_that_is_not_the_store_s_is_refused_in_a_line_and_left_alone(
    wrong, instance
) -> None:
    state, store, lake = wrong
    before = files(lake)
    # PostgreSQL still has what is read of a lake that is not there.
    for name, words in {"dagster": DAGSTER, **({} if state == "empty" else READERS)}.items():
        result = command(store, *words)
        assert result.exit_code != 0, name
        assert REASONS[state] in result.output.splitlines()[-1], (name, result.output)
    for job in ("sealing", "housekeeping"):
        run = definitions.resolve_job_def(f"deploy_reward_{job}").execute_in_process(
            instance=instance, raise_on_error=False
        )
        assert not run.success or state == "empty"
    doctor = command(store, "doctor", "--project", "shop")
    assert re.search(r"✗\s+log sealed.*WrongLakeError", doctor.stdout, re.DOTALL)
    assert files(lake) == before


@pytest.mark.parametrize("wrong", also_nightly(["later"], ["another", "empty"]), indirect=True)
def test_a_word_that_names_the_lake_accepts_it_once(wrong, instance, monkeypatch) -> None:
    state, store, lake = wrong
    word = re.search(r"SERVICE_ACCEPT=(\w+)", command(store, *DAGSTER).output)
    assert word is not None
    monkeypatch.setenv("SERVICE_ACCEPT", f"another,{word[1]}")
    assert command(store, *READERS["evaluate"]).exit_code == 0
    sealing = definitions.resolve_job_def("deploy_reward_sealing")
    assert sealing.execute_in_process(instance=instance).success
    monkeypatch.delenv("SERVICE_ACCEPT")
    assert command(store, *READERS["evaluate"]).exit_code == 0
    housekeeping = definitions.resolve_job_def("deploy_reward_housekeeping")
    assert housekeeping.execute_in_process(instance=instance).success
    with store.engine.connect() as connection:
        listed = {file.name for file in listed_files(connection, "true")}
    assert {str(path.relative_to(lake)) for path in files(lake)} == {"store.txt", *listed}
    if state != "empty":
        monkeypatch.setenv("SERVICE_ACCEPT", word[1])
        (lake / "store.txt").write_text("another 0")
        assert command(store, *READERS["evaluate"]).exit_code != 0


def test_a_home_of_dagster_is_one_store_s_alone(walked, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("SERVICE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("SERVICE_LAKE", str(tmp_path / "lake"))
    claim_folders(walked.url, tmp_path)
    claim_folders(walked.url, tmp_path)
    walked.tamper("UPDATE installation SET identity = gen_random_uuid()")
    refused = command(walked, *DAGSTER)
    line = refused.output.splitlines()[-1]
    assert line.startswith(f"Error: {tmp_path / 'dagster'} is another store's")
    assert not (tmp_path / "dagster" / "workspace.yaml").exists()
    monkeypatch.setenv("SERVICE_ACCEPT", line.rpartition("=")[2].split()[0])
    claim_folders(walked.url, tmp_path)
    monkeypatch.delenv("SERVICE_ACCEPT")
    claim_folders(walked.url, tmp_path)
