"""Durability: what is listed is on the disk, and what is not listed is nobody's."""

import os
from pathlib import Path

import pytest

from storage.lake.removal import delete_unlisted
from storage.lake.sealed_hours import keep_files
from storage.lake.sealing import Sealer
from tests.storage.log.conftest import WatchedLake


def test_a_file_and_its_name_are_on_the_disk_before_it_is_listed(day, monkeypatch) -> None:
    synced: dict[str, list[int]] = {}
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        fsync(descriptor)
        status = os.fstat(descriptor)
        entries = len(os.listdir(descriptor)) if Path(f"/proc/self/fd/{descriptor}").is_dir() else 0
        synced.setdefault(str(status.st_ino), []).append(entries or status.st_size)

    monkeypatch.setattr(os, "fsync", recorded)
    listed: list[Path] = []

    def at_step(step: str) -> None:
        if step == "checked":
            for path in set(day.files()) - set(listed):
                assert synced[str(path.stat().st_ino)][-1] == path.stat().st_size
                # The name is an entry of the folder, which is synced after it has it.
                assert synced[str(path.parent.stat().st_ino)][-1] == len(
                    list(path.parent.iterdir())
                )
                listed.append(path)

    Sealer(engine=day.engine, lake=WatchedLake(day.lake.folder, at_step)).seal()

    assert sorted(listed) == day.listed()


class Stopped(Exception):  # noqa: N818 - where a run ends
    pass


@pytest.mark.parametrize("at", ["write", "written", "checked"])
def test_a_run_that_ends_before_any_step_is_finished_by_the_next(day, at) -> None:
    whole = day.read()
    seen = 0

    def stop(step: str) -> None:
        nonlocal seen
        seen += step == at
        if step == at and seen == 2:
            raise Stopped

    with pytest.raises(Stopped):
        Sealer(engine=day.engine, lake=WatchedLake(day.lake.folder, stop)).seal()
    assert day.read() == whole

    day.seal()
    assert day.read() == whole
    assert day.in_files() == whole


def test_a_file_that_is_listed_no_longer_stays_until_its_readers_have_ended(day) -> None:
    day.seal()
    first = day.listed()[0]
    day.execute(
        "WITH gone AS (UPDATE sealed_hours SET file = NULL, rows = 0, bytes = NULL, sha256 = NULL"
        " WHERE file = :file RETURNING 1) INSERT INTO unlisted_files VALUES (:file, now())",
        file=str(first.relative_to(day.lake.folder)),
    )
    with day.engine.begin() as reader:
        keep_files(reader)
        assert delete_unlisted(day.engine, day.lake) is None
        assert first.exists()

    assert delete_unlisted(day.engine, day.lake) == 1
    assert day.files() == day.listed()
