"""Kills of the orchestrator: readers see a whole verdict, old or new, and the next tick heals."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from typing import Protocol

import dagster as dg
import pytest
from sqlalchemy import Engine, text

from cli.processes.dagster_home import POSTGRES_VARIABLE, dagster_environment, write_dagster_home
from orchestration.dagster.schedules import UNDER_WAY
from storage.tenants.keys import KeyKind
from tests.clients.crowd import Crowd, crowd
from tests.clients.shop import Shop, open_shop
from tests.processes.api_process import eventually, port_of_our_own
from tests.processes.runs import Runs
from tests.processes.server_folder import migrated_server
from tests.processes.tick import Tick
from tests.processes.up_process import UpProcess
from tests.repetition import times
from tests.stores.barrier import Barrier, Place, barrier
from tests.stores.derived import derived_of
from tests.stores.past import Bookmark, Edition, Ending, as_served, day_of_orders, ending, walk_to

pytestmark = pytest.mark.process

CONNECTIONS = 2
# A run starts in a few seconds, and ticks come each minute; the rest is for busy machines.
WAIT_SECONDS = 240
# Readers need a core's time for each answer, and the barrier holds still what they are to see.
POLL_SECONDS = 0.1
# Where a walk is stopped: before a step's first row, and after its last row, uncommitted.
PLACES = [
    Place(when=when, table=table)
    for table, when in (
        ("verdicts", "BEFORE"),
        ("exposures", "AFTER"),
        ("cells", "BEFORE"),
        ("evidence", "AFTER"),
        ("exposures", "BEFORE"),
        ("strata", "BEFORE"),
        ("strata", "AFTER"),
        ("sightings", "BEFORE"),
        ("sightings", "AFTER"),
        ("conversions", "BEFORE"),
        ("conversions", "AFTER"),
        ("amounts", "BEFORE"),
        ("amounts", "AFTER"),
        ("cells", "AFTER"),
        ("cursors", "BEFORE"),
        ("cursors", "AFTER"),
        ("evidence", "BEFORE"),
        ("verdicts", "AFTER"),
        ("next_looks", "AFTER"),
        ("publication_progress", "AFTER"),
    )
]
# A step notes at its end how long it took.
NOTED = [Place(when=when, table="pipeline_steps") for when in ("BEFORE", "AFTER")]


class Victim(Protocol):
    def running(self) -> bool: ...
    def last_words(self) -> str: ...
    def kill(self) -> None: ...


@dataclass(kw_only=True)
class Reader:
    """Polls an experiment's verdict and evidence: each to the byte that of an edition.

    Evidence has words for the traffic of its moment: just before the answer, or just after.
    """

    engine: Engine
    experiment_id: str
    editions: Sequence[Edition]
    latest: int = 0
    answers: int = 0

    def poll(self, crowd: Crowd) -> None:
        """Reads the verdict, the evidence and the verdict again, over every connection."""
        path = f"/v1/reward/{self.experiment_id}"
        self._see(crowd, path, lambda: [each.contract for each in self.editions])
        self._see(crowd, f"{path}/evidence", self._evidence)
        self._see(crowd, path, lambda: [each.contract for each in self.editions])

    def _evidence(self) -> Sequence[str]:
        name = self.experiment_id
        with self.engine.connect() as connection:
            return [as_served(connection, {name: each})[name] for each in self.editions]

    def _see(self, crowd: Crowd, path: str, served: Callable[[], Sequence[str]]) -> None:
        before, earlier, answers = self.latest, served(), list(crowd.get(path))
        published = list(zip(earlier, served(), strict=True))
        for answer in answers:
            body = answer.body.decode()
            # A verdict may say the same in both, while its evidence does not.
            numbers = [number for number, each in enumerate(published) if body in each]
            assert (answer.status, bool(numbers)) == (200, True), f"{path} told {body}"
            assert numbers[-1] >= before, f"{path} went back to the old edition"
            self.latest = max(self.latest, numbers[0])
            self.answers += 1


@dataclass(kw_only=True)
class Theatre:
    """A shop whose first half of a history is walked and served, and its readers."""

    shop: Shop
    end: Ending
    bookmark: Bookmark
    readers: Sequence[Reader]
    crowd: Crowd | None = None
    kills: int = 0
    healed_at_once: int = 0

    @contextmanager
    def seated(self, port: int) -> Generator[None]:
        """The readers sit before a service for as long as the context lasts."""
        with crowd(port, self.shop.keys[KeyKind.PROJECT], size=CONNECTIONS) as self.crowd:
            yield

    def poll_until(self, condition: Callable[[], bool]) -> None:
        """Polls until it is true, and then once more."""

        def polled() -> bool:
            self._poll()
            return condition()

        eventually(polled, seconds=WAIT_SECONDS, pause=POLL_SECONDS)
        self._poll()

    def go_back(self) -> None:
        """Serves the old edition again, as though the second half had just come."""
        self.bookmark.go_back()
        for reader in self.readers:
            reader.latest = 0

    def kill_at(self, place: Place, begin: Callable[[], Victim]) -> None:
        """Kills a walk that begins from the old edition at a place, and heals it by ticks."""
        self.go_back()
        with barrier(self.shop.url, place) as held:
            victim = begin()
            try:
                self.poll_until(lambda: held.holds() or not victim.running())
                assert held.holds(), f"nobody came to {place}: {victim.last_words()}"
                assert self._tick() == UNDER_WAY
            finally:
                victim.kill()
            self.kills += 1
            self._poll()
        self._tick()
        self.healed_at_once += self.is_whole()
        self._tick()
        self.require_the_end()

    def is_whole(self) -> bool:
        return derived_of(self.shop.engine) == self.end.derived

    def require_the_end(self) -> None:
        """Holds that everything is as though nobody had been killed, and that readers saw it."""
        assert derived_of(self.shop.engine) == self.end.derived
        assert [reader.latest for reader in self.readers] == [1] * len(self.readers)

    def report(self) -> None:
        print(  # noqa: T201 - the counts that `pytest -rP` shows
            f"{self.kills} kills, {sum(reader.answers for reader in self.readers)} answers whole,"
            f" healed by the first tick {self.healed_at_once} times"
        )

    def _poll(self) -> None:
        assert self.crowd is not None
        for reader in self.readers:
            reader.poll(self.crowd)

    def _tick(self) -> str:
        tick = Tick(url=self.shop.url)
        self.poll_until(lambda: not tick.running())
        return tick.output()


@pytest.fixture
def shop(postgres) -> Iterator[Shop]:
    shop = open_shop(postgres.url, history=day_of_orders)
    yield shop
    shop.engine.dispose()


@pytest.fixture
def runs(folder, shop, monkeypatch) -> Iterator[Runs]:
    data_dir = folder / "service"
    home = write_dagster_home(data_dir)
    env = dagster_environment(shop.url, home, data_dir, web_url="http://127.0.0.1:3000")
    monkeypatch.setenv(POSTGRES_VARIABLE, env[POSTGRES_VARIABLE])
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield Runs(url=shop.url, instance=instance, env=env, log=folder / "runs.log")


def theatre(shop: Shop) -> Theatre:
    """Walks half of the history; the other half is to come."""
    half_way = datetime.now(UTC) - timedelta(hours=16)
    walk_to(shop.engine, half_way)
    old, end = ending(shop.engine, as_of=half_way), ending(shop.engine)
    assert derived_of(shop.engine) == old.derived
    assert all(old.editions[name] != end.editions[name] for name in shop.experiments)
    return Theatre(
        shop=shop,
        end=end,
        bookmark=Bookmark(shop.engine),
        readers=[
            Reader(
                engine=shop.engine,
                experiment_id=name,
                editions=(old.editions[name], end.editions[name]),
            )
            for name in shop.experiments
        ],
    )


# Readers of either worker may meet the new verdict first: none reads the old verdict after it.
@pytest.mark.parametrize("workers", [2], ids=["two workers"])
@times(gate=1, nightly=4, deep=20)
def test_a_tick_that_is_killed_anywhere_is_healed_by_the_next(shop, api, times) -> None:
    stage = theatre(shop)
    with stage.seated(api.port):
        for place in [*PLACES, *NOTED][:times]:
            stage.kill_at(place, lambda: Tick(url=shop.url))
    stage.report()


# In the gate a killed tick stands for it, and tests/orchestration/test_dead_runs.py for its end.
@pytest.mark.nightly
@times(gate=4, deep=20)
def test_a_run_whose_worker_is_killed_anywhere_is_healed_by_a_tick_and_fails(
    shop, api, runs, times
) -> None:
    stage = theatre(shop)
    with stage.seated(api.port):
        for place in islice(cycle(PLACES), times):
            stage.kill_at(place, runs.begin)
    stage.report()
    assert runs.statuses() == {dg.DagsterRunStatus.STARTED}
    runs.reap()
    assert runs.statuses() == {dg.DagsterRunStatus.FAILURE}


@pytest.fixture
def up(folder, monkeypatch) -> Iterator[UpProcess]:
    monkeypatch.setenv("SERVICE_IDLE_SECONDS", "600")
    with port_of_our_own() as port:
        up = UpProcess(data_dir=folder / "data", log=folder / "up.log", port=port)
        yield up
        up.kill()


@pytest.mark.nightly
@times(gate=1, deep=20)
def test_a_service_that_is_killed_whole_is_healed_within_two_ticks_of_the_next_start(
    folder, up, times
) -> None:
    places = list(islice(cycle(PLACES[::-1]), times))
    with migrated_server(folder) as postgres:
        shop = open_shop(postgres.url, history=day_of_orders)
        stage = theatre(shop)
        # The first tick may come as soon as everything stands.
        Barrier(url=shop.url, place=places[0]).put_up()
        shop.engine.dispose()
    up.start()
    for number, place in enumerate(places):
        held = Barrier(url=shop.url, place=place)
        with stage.seated(up.port):
            if number:
                held.put_up()
                stage.go_back()
            stage.poll_until(held.holds)
            before = ticks(shop)
        up.kill()
        stage.kills += 1
        shop.engine.dispose()
        up.start()
        held.take_down()
        with stage.seated(up.port):
            stage.poll_until(stage.is_whole)
            assert ticks(shop) - before <= 2
            stage.require_the_end()
    stage.report()
    shop.engine.dispose()


def ticks(shop: Shop) -> int:
    """Returns how many ticks of the fast schedule Dagster knows of."""
    with shop.engine.connect() as connection:
        return connection.execute(
            text(
                "SELECT count(*) FROM dagster.job_ticks"
                " WHERE tick_body::json ->> 'job_name' = 'deploy_reward_fast'"
            )
        ).scalar_one()
