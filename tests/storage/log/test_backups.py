"""Backups: first the store, then the lake; and a disk that is full harms nothing."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from storage.lake.comparison import compare_files
from storage.lake.lake import FolderLake
from storage.lake.removal import sweep
from storage.postgres.engine import open_engine
from tests.storage.log.conftest import World
from tests.stores.backup import address, dump, empty_database, restore


@pytest.fixture
def restored(day, tmp_path) -> Iterator[World]:
    """A store and a lake of their own, to which `day` is restored."""
    with empty_database(day.engine) as url:
        engine = open_engine(url)
        yield World(engine=engine, lake=FolderLake(tmp_path / "copy"), project_id=day.project_id)
        engine.dispose()


def test_a_store_that_was_copied_before_its_lake_is_whole(day, restored, tmp_path) -> None:
    day.seal()
    day.append(day.event("unsealed", 5))
    expected = day.read()
    dump(day.engine, tmp_path / "dump")
    # The service goes on: what comes now is in the lake's copy and not on the list.
    day.append(day.event("later", 6))
    day.seal()
    shutil.copytree(day.lake.folder, restored.lake.folder)

    restore(address(restored.engine), tmp_path / "dump")

    assert restored.read() == expected
    with restored.engine.begin() as connection:
        assert compare_files(connection, restored.lake).different == []
    assert sweep(restored.engine, restored.lake, as_of=datetime.now(UTC) + timedelta(days=2)) == 1
    assert restored.read() == expected


def test_a_lake_that_was_copied_before_its_store_lacks_files_and_they_are_named(
    day, restored, tmp_path
) -> None:
    day.seal()
    shutil.copytree(day.lake.folder, restored.lake.folder)
    day.append(day.event("later", 6))
    day.seal()
    dump(day.engine, tmp_path / "dump")

    restore(address(restored.engine), tmp_path / "dump")

    with restored.engine.begin() as connection:
        (missing,) = compare_files(connection, restored.lake).different
    assert missing.reason == "is missing"


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of a megabyte that is full but for some pages."""
    folder = Path(tempfile.mkdtemp(prefix="deploy-reward-"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("only root, where it may mount a tmpfs, can make a disk that fills up")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()


def test_a_disk_that_is_full_harms_nothing_and_the_next_run_goes_on(day, small_disk) -> None:
    whole = day.read()
    lake = FolderLake(small_disk / "lake")
    world = World(engine=day.engine, lake=lake, project_id=day.project_id)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(2**20 - 2 * 4096))

    with pytest.raises(OSError, match="No space left on device"):
        world.seal()

    assert world.files() == world.listed()
    assert world.read() == whole
    ballast.unlink()
    world.seal()
    assert world.read() == world.in_files() == whole
