"""Kills of commands that rewrite derived tables: no reader and no gate sees less than before."""

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from domain.registration import PRODUCTION
from storage.log.events import RuntimeEvent
from storage.tenants.keys import KeyKind
from tests.clients.delivery import CONTROL, TREATMENT
from tests.clients.pollers import Answer, Pollers, pollers, questions_of
from tests.clients.shop import Shop, open_shop
from tests.processes.api_process import eventually
from tests.processes.command import Command
from tests.repetition import times
from tests.stores.barrier import Place, barrier
from tests.stores.derived import Derived, derived_of
from tests.stores.past import Bookmark, walk_to
from tests.world import record_deploy, register_experiment

pytestmark = pytest.mark.process

_SESSIONS, _HOURS = 720, 20
# Of each ten in turn, how many do what in control and treatment: by the first half of the sessions
# `order` is kept and `sign_up` rolled back; of `browse` nothing can be said at the end either.
_RATES = {"order": (3, 6), "sign_up": (5, 1), "browse": (4, 4)}
_IMPORTED = 3000
# Between two rounds of questions, so that a core is left for whom they are asked about.
_PAUSE_SECONDS = 0.1


def sessions(
    begin: datetime, *, environment: str, number: int, treatment: str = TREATMENT
) -> Iterator[dict[str, Any]]:
    """Sessions spread evenly over some hours, half of them treated, as lines of a file."""
    for session in range(number):
        commit = (CONTROL, treatment)[session % 2]
        exposed_at = begin + timedelta(hours=_HOURS) * session / number
        done = [
            name
            for place, (name, rates) in enumerate(_RATES.items())
            if (session // 2 * (3, 7, 9)[place] + place) % 10 < rates[session % 2]
        ]
        for event in ("page_view", *done):
            yield {
                "event": event,
                "session_id": f"s{session}",
                "commit": commit,
                "environment": environment,
                "occurred_at": exposed_at + timedelta(minutes=3 * (event != "page_view")),
            }


def day_of_sessions(project_id: int, begin: datetime) -> Iterator[RuntimeEvent]:
    for line in sessions(begin, environment=PRODUCTION, number=_SESSIONS):
        commit = line.pop("commit")
        yield RuntimeEvent(project_id=project_id, commit_sha=commit, **line)


@dataclass(kw_only=True)
class Stage:
    """A shop of which half a day is walked and served, and those who poll it meanwhile.

    Attributes:
        end: What is derived of the whole day by an `evaluate` that nobody disturbed.
    """

    shop: Shop
    folder: Path
    pollers: Pollers
    bookmark: Bookmark
    dice: random.Random
    end: Derived | None = None
    kills: int = 0
    polled_at: float = 0.0

    def run(self, *words: str) -> Command:
        return Command(words=words, url=self.shop.url, log=self.folder / f"{words[0]}.log")

    def polled(self, process: Command, *, seconds: float = 120) -> bool:
        """Polls while a process works, so long at most; returns whether it has ended."""
        ends = time.monotonic() + seconds
        while process.running() and (left := ends - time.monotonic()) > 0:
            self.pollers.poll()
            process.ended_within(min(left, _PAUSE_SECONDS))
        return not process.running()

    def unkilled(self, *words: str) -> float:
        """Runs a command to its end, and returns how many seconds it took."""
        begun = time.monotonic()
        command = self.run(*words)
        assert self.polled(command), f"{words[0]} does not end"
        assert command.succeeded(), command.last_words()
        self.pollers.poll()
        return time.monotonic() - begun

    def kill_at_random(
        self, times: int, *words: str, lasts: float, again: Callable[[], None]
    ) -> None:
        """Kills a command at so many moments, each after `again` has set the stage."""
        for _ in range(times):
            while True:
                again()
                command = self.run(*words)
                self.polled(command, seconds=self.dice.uniform(0, lasts))
                if command.kill():
                    break
                # It had ended by itself: its next run may take less time too.
                lasts *= 0.8
            self.kills += 1
            self.after_a_kill()

    def kill_in_the_swap(self, place: Place) -> None:
        """Kills a rebuild when it has written some of what it swaps in."""
        with barrier(self.shop.url, place) as held:
            command = self.run("rebuild")
            eventually(lambda: self.poll_after_a_pause() or held.holds() or not command.running())
            assert held.holds(), command.last_words()
            assert command.kill()
            self.kills += 1
            self.pollers.poll()
        self.after_a_kill()

    def poll_after_a_pause(self) -> None:
        """Polls where the last time was a pause ago."""
        if time.monotonic() - self.polled_at > _PAUSE_SECONDS:
            self.pollers.poll()
            self.polled_at = time.monotonic()

    def after_a_kill(self) -> None:
        """Polls until the store has noticed; nothing of the command is left in it then."""

        def noticed() -> bool:
            self.poll_after_a_pause()
            with self.shop.engine.connect() as connection:
                return connection.execute(_OTHERS).scalar_one() == 0

        eventually(noticed)
        self.pollers.poll()

    def go_back(self) -> None:
        """Serves the first half again."""
        self.bookmark.go_back()
        self.pollers.latest = [0] * len(self.pollers.questions)

    def require_the_end(self) -> None:
        assert derived_of(self.shop.engine) == self.end
        assert self.pollers.latest == [len(set(each)) - 1 for each in self.pollers.editions]


# Tables of no session that lives, and sessions with locks that are no reader's.
_OTHERS = text("""
SELECT (SELECT count(*) FROM pg_class WHERE relpersistence = 't')
    + (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')
""")


@pytest.fixture
def shop(postgres) -> Iterator[Shop]:
    shop = open_shop(postgres.url, history=day_of_sessions)
    yield shop
    shop.engine.dispose()


@pytest.fixture
def stage(folder, shop, api) -> Iterator[Stage]:
    metrics = {"order": shop.orders}
    with shop.engine.begin() as connection:
        for metric in ("sign_up", "browse"):
            metrics[metric] = register_experiment(
                connection,
                shop.project.project_id,
                treatment_commit=TREATMENT,
                target_metric=metric,
            )
    walk_to(shop.engine, datetime.now(UTC) - timedelta(hours=14))
    bookmark = Bookmark(shop.engine)
    key = shop.keys[KeyKind.PROJECT]
    with pollers(api.port, key, questions_of(metrics)) as asking:
        yield Stage(
            shop=shop,
            folder=folder,
            pollers=asking,
            bookmark=bookmark,
            dice=random.Random(20261122),
        )


@pytest.mark.nightly
@times(gate=1, deep=20)
def test_commands_that_are_killed_take_no_answer_back_and_open_no_gate(stage, times) -> None:
    asking = stage.pollers
    old = asking.ask()
    assert '"verdict":"keep"' in old[0][1]
    assert '"verdict":"rollback"' in old[7][1]
    assert '"verdict":"abstain"' in old[14][1]
    evaluate_lasts = evaluate_undisturbed(stage, old)

    stage.go_back()
    rebuild_lasts = stage.unkilled("rebuild")
    stage.require_the_end()
    for place in SWAPPED[: max(1, times // 3)]:
        stage.go_back()
        stage.kill_in_the_swap(place)
    for words, lasts in (
        (("rebuild",), rebuild_lasts),
        (("evaluate",), evaluate_lasts),
        (("backfill", *days()), evaluate_lasts),
    ):
        stage.kill_at_random(times, *words, lasts=lasts, again=stage.go_back)
        stage.unkilled(*words)
        stage.require_the_end()

    killed_erasures(stage, times)
    killed_imports(stage, times)
    print(  # noqa: T201 - the counts that `pytest -rP` shows
        f"{stage.kills} kills, {asking.answers} answers,"
        f" {len(asking.flips)} flips, {len(asking.opened)} gates opened"
    )
    assert (asking.opened, asking.flips) == ([], [])


# A rebuild writes these tables in its swap: before the first row, or after the last.
SWAPPED = [
    Place(when=when, table=table)
    for table, when in (
        ("cells", "AFTER"),
        ("exposures", "BEFORE"),
        ("verdicts", "AFTER"),
        ("exposures", "AFTER"),
        ("evidence", "BEFORE"),
        ("verdicts", "BEFORE"),
    )
]


def evaluate_undisturbed(stage: Stage, old: Sequence[Answer]) -> float:
    """Evaluates the day, so that its answers are known; returns the seconds that it took."""
    begun = time.monotonic()
    command = stage.run("evaluate")
    assert command.succeeded(), command.last_words()
    lasts = time.monotonic() - begun
    new = stage.pollers.ask()
    # What is decided stays; the evidence of `browse` goes on.
    assert (new[:14], new[15] != old[15]) == (old[:14], True)
    stage.pollers.expect(old, new)
    stage.end = derived_of(stage.shop.engine)
    return lasts


def days() -> tuple[str, str]:
    today: date = datetime.now(UTC).date()
    return (today - timedelta(days=1)).isoformat(), today.isoformat()


def killed_erasures(stage: Stage, times: int) -> None:
    """Kills `forget`, session after session, and then forgets each of them."""
    words = ("forget", "--project", "shop", "--session")
    lasts = stage.unkilled(*words, "s0")
    for number in range(times):
        session = f"s{number + 1}"
        stage.kill_at_random(1, *words, session, lasts=lasts, again=lambda: None)
        stage.unkilled(*words, session)
        with stage.shop.engine.connect() as connection:
            assert connection.execute(_STORED, {"session": session}).scalar_one() == 0


_STORED = text("""
SELECT (SELECT count(*) FROM runtime_events WHERE session_id = :session)
    + (SELECT count(*) FROM exposures WHERE unit = :session)
    + (SELECT count(*) FROM conversions WHERE unit = :session)
""")


def killed_imports(stage: Stage, times: int) -> None:
    """Kills the import of a file, and then reads it: it ends as another that was not killed."""
    begin = datetime.now(UTC) - timedelta(days=1)
    experiments: list[str] = []
    lasts = 0.0
    for environment, treatment, kills in (
        ("undisturbed", "decade2", 0),
        ("disturbed", "decade3", times),
    ):
        file = stage.folder / f"{environment}.ndjson"
        lines = sessions(begin, environment=environment, number=_IMPORTED, treatment=treatment)
        written = (json.dumps(line, default=datetime.isoformat) for line in lines)
        file.write_text("\n".join(written))
        words = ("import", str(file), "--project", "shop")
        again = partial(take_out_what_is_whole, stage, environment)
        stage.kill_at_random(kills, *words, lasts=lasts, again=again)
        again()
        lasts = stage.unkilled(*words)
        experiments.append(released(stage, environment, treatment, begin))
    stage.unkilled("evaluate")
    with stage.shop.engine.connect() as connection:
        rows = connection.execute(_CONTRACTS, {"ids": experiments}).scalars()
        undisturbed, disturbed = ({**each, "experiment_id": ""} for each in rows)
    assert undisturbed == disturbed
    assert disturbed["verdict"] == "rollback"


_CONTRACTS = text("SELECT contract FROM verdicts WHERE experiment_id = ANY(:ids)")
_IN = text("SELECT count(*) FROM runtime_events WHERE environment = :environment")


def take_out_what_is_whole(stage: Stage, environment: str) -> None:
    """Requires that all of a file was stored or nothing, and makes it nothing."""
    with stage.shop.engine.begin() as connection:
        asked = {"environment": environment}
        stored = connection.execute(_IN, asked).scalar_one()
        whole = connection.execute(_IN, {"environment": "undisturbed"}).scalar_one()
        assert stored in (0, whole)
        connection.execute(
            text("DELETE FROM runtime_events WHERE environment = :environment"), asked
        )


def released(stage: Stage, environment: str, treatment: str, begin: datetime) -> str:
    """Posts the deploys of what was imported, and makes the second an experiment."""
    project_id = stage.shop.project.project_id
    with stage.shop.engine.begin() as connection:
        for sha, at, share in ((CONTROL, begin - timedelta(days=1), None), (treatment, begin, 0.5)):
            record_deploy(connection, project_id, sha, at, share, environment=environment)
        members = {"treatment_commit": treatment, "environment": environment}
        return register_experiment(connection, project_id, target_metric="sign_up", **members)
