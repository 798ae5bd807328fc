"""Kills: a night of the lake may die before any step, while others read and people are erased."""

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from storage.upkeep.forgetting import forget_person
from tests.repetition import times
from tests.storage.log.conftest import World
from tests.storage.log.tending import tend, tend_and_die

pytestmark = pytest.mark.process

# A night with a person to forget has some 26 steps; far apart, so that few kills end many kinds.
_STEPS, _STRIDE = 24, 7
_NEVER = 10**9


def bring(world: World, turn: int) -> bytes:
    """History of a person who will be forgotten, and of somebody else, into sealed hours."""
    user = bytes([200, turn % 250]) * 8
    world.append(
        *(
            world.event(f"own-{turn}-{number}", 5 + number, pseudonym=user)
            for number in range(0, 120, 40)
        ),
        *(world.event(f"else-{turn}", 7 + number) for number in range(0, 120, 40)),
    )
    return user


@contextmanager
def read_meanwhile(world: World, expected: Counter[Any]) -> Iterator[list[str]]:
    """Reads the log over and over, and notes each reading that is not the expected reading."""
    faults: list[str] = []
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            try:
                result = world.read()
            except Exception as error:  # noqa: BLE001 - whatever it is, a reader met it
                faults.append(repr(error))
                return
            if result != expected:
                faults.append(f"{sum(result.values())} events, not {sum(expected.values())}")

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield faults
    finally:
        over.set()
        reader.join()


def require_every_listed_file(world: World, *, but: Path | None = None) -> None:
    with world.engine.begin() as connection:
        rows = connection.execute(
            text("SELECT file, sha256 FROM sealed_hours WHERE file IS NOT NULL")
        )
        for file, digest in rows.all():
            if world.lake.folder / file == but:
                continue
            content = (world.lake.folder / file).read_bytes()
            assert hashlib.sha256(content).digest() == digest


def tend_to_the_end(world: World, url: str) -> None:
    """Tends until nothing is left: PostgreSQL may hold the locks of a dead process for a while."""
    left = text(
        "SELECT (SELECT count(*) FROM erasures) + (SELECT count(*) FROM unlisted_files)"
        " + (SELECT count(*) FROM sealed_hours WHERE sealed_at IS NULL)"
    )
    for _ in range(100):
        tend(url, str(world.lake.folder), _NEVER)
        with world.engine.begin() as connection:
            if connection.execute(left).scalar_one() == 0:
                return
    raise AssertionError("the lake is not tended after 100 nights")


@times(gate=2, deep=20)
def test_a_kill_at_any_step_loses_nothing_and_keeps_nobody_who_was_forgotten(day, times) -> None:
    url = day.engine.url.render_as_string(hide_password=False)
    tend(url, str(day.lake.folder), _NEVER)
    turn = killed = 0
    # A night that meets the lock of a dead night has fewer steps: it may end before it is killed.
    while killed < times and turn < 3 * times:
        turn += 1
        user = bring(day, turn)
        if turn % 2:
            tend(url, str(day.lake.folder), _NEVER)
        with day.engine.begin() as connection:
            forget_person(connection, day.project_id, user)
        expected = day.read()
        assert not [row for row in expected if f"own-{turn}-" in row[3]]
        wrong = None
        if turn % 2 == 0:
            # PostgreSQL has its events, and the night takes them from there.
            wrong = day.listed()[turn % len(day.listed())]
            wrong.write_bytes(wrong.read_bytes()[:-9])

        with read_meanwhile(day, expected) as faults:
            killed += tend_and_die(url, day.lake.folder, before=turn * _STRIDE % _STEPS)

        assert faults == []
        require_every_listed_file(day, but=wrong)
        assert day.read() == expected

        tend_to_the_end(day, url)
        assert day.read() == day.in_files() == expected
        for path in day.listed():
            assert f"own-{turn}-".encode() not in path.read_bytes()
    assert killed == times
