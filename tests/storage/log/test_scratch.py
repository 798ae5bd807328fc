"""Scratch: files that a computation keeps in the lake, which no list names and only it reads."""

import os
from datetime import UTC, datetime, timedelta

import pytest

from storage.lake.lake import Lake, open_lake
from storage.lake.removal import sweep

ROWS = b"rows of a step"


@pytest.fixture(params=["folder", "bucket"])
def lake(day, request) -> Lake:
    return day.lake if request.param == "folder" else open_lake(f"memory://{os.urandom(4).hex()}")


def names(lake: Lake) -> set[str]:
    return {name for name, _ in lake.names()}


def put(lake: Lake, name: str) -> None:
    with lake.writing(name) as path:
        path.write_bytes(ROWS)


def test_files_of_a_computation_go_with_it(lake) -> None:
    put(lake, "2026-11-22/13-0-a.parquet")
    with lake.scratch() as folder, lake.scratch() as other:
        put(lake, f"{folder}/rest.parquet")
        put(lake, f"{folder}/seen-1/part-0.parquet")
        put(lake, f"{other}/rest.parquet")
        assert len(names(lake)) == 4
    assert names(lake) == {"2026-11-22/13-0-a.parquet"}


def test_what_a_killed_computation_left_is_swept_after_a_day(day, lake) -> None:
    left = {"scratch/killed/rest.parquet", "scratch/killed/seen-1/part-0.parquet"}
    for name in left:
        put(lake, name)
    assert sweep(day.engine, lake) == 0
    assert names(lake) == left
    assert sweep(day.engine, lake, as_of=datetime.now(UTC) + timedelta(hours=25)) == 2
    assert names(lake) == set()


def test_a_computation_reads_the_names_of_the_files_that_a_cluster_wrote(lake) -> None:
    with lake.scratch() as folder:
        written = [f"{folder}/rows-1/part-{number}.parquet" for number in range(3)]
        for name in (*written, f"{folder}/rows-2/part-0.parquet"):
            put(lake, name)
        assert lake.files(f"{folder}/rows-1") == written
