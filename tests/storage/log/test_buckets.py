"""Buckets: a lake in an object store is written, read and rewritten as a lake in a folder."""

import os

import pytest

from storage.lake.comparison import compare_files
from storage.lake.erasures import rewrite_files
from storage.lake.lake import BucketLake, FolderLake, open_lake
from storage.lake.removal import delete_unlisted
from storage.log.file_errors import LakeError
from storage.upkeep.forgetting import forget_person
from tests.storage.log.conftest import World


@pytest.fixture
def bucket(day) -> World:
    """The day, with a lake in the object store that fsspec keeps in memory."""
    name = f"memory://lake-{os.urandom(4).hex()}"
    lake = open_lake(name)
    assert isinstance(lake, BucketLake)
    return World(engine=day.engine, lake=lake, project_id=day.project_id)


def names(world: World) -> list[str]:
    return [name for name, _ in world.lake.names()]


def test_a_bucket_holds_and_gives_what_a_folder_would(bucket) -> None:
    whole = bucket.read()
    bucket.seal()

    assert len(names(bucket)) == 3
    assert bucket.read() == whole
    with bucket.engine.begin() as connection:
        compared = compare_files(connection, bucket.lake)
    assert (compared.files, compared.different) == (3, [])


def test_who_is_forgotten_leaves_a_bucket_at_night(bucket) -> None:
    bucket.seal()
    before = names(bucket)
    with bucket.engine.begin() as connection:
        forget_person(connection, bucket.project_id, "s7")
    rewrite_files(bucket.engine, bucket.lake)
    delete_unlisted(bucket.engine, bucket.lake)

    assert len(names(bucket)) == 3
    assert not set(before) & set(names(bucket))
    assert not [row for row in bucket.read() if row[3] == "s7"]


def test_an_address_that_nothing_here_can_open_is_said(monkeypatch) -> None:
    monkeypatch.setenv("SERVICE_LAKE", "nowhere://bucket/lake")

    with pytest.raises(LakeError, match="SERVICE_LAKE is 'nowhere://bucket/lake'"):
        open_lake()


def test_a_lake_without_a_name_is_a_folder_of_the_data_directory(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("SERVICE_LAKE")
    monkeypatch.setenv("SERVICE_DATA_DIR", str(tmp_path))

    lake = open_lake()

    assert isinstance(lake, FolderLake)
    assert lake.folder == tmp_path / "lake"
