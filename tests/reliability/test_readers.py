"""Readers while ticks publish: each sees whole verdicts, and never an older verdict again."""

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from domain.contract import contract
from domain.document import document_text
from storage.tenants.keys import KeyKind
from storage.verdicts.publication import Draft, publish_verdicts, stage_evidence
from tests.clients.crowd import Answer, Crowd, crowd
from tests.clients.shop import Shop
from tests.processes.api_process import eventually
from tests.repetition import times

pytestmark = pytest.mark.process

CONNECTIONS = 8
# As long as those of an experiment with many looks.
_LOOKS = 200
_TICK_SECONDS = 0.02


def edition(experiment_id: str, number: int) -> Draft:
    """A verdict and its evidence, every number of which belongs to the same edition."""
    answer = contract(
        experiment_id,
        verdict="rollback",
        abstain_reason=None,
        decided=False,
        lift=-number / 1e6,
        confidence=number / 1e6,
        ci=[-number / 1e6] * 2,
        value_at_risk=number / 1e6,
    )
    as_of = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    return Draft(
        experiment_id=experiment_id,
        document=document_text({"experiment_id": experiment_id, "looks": [number] * _LOOKS}),
        contract=document_text(answer),
        as_of=as_of,
        next_look_at=as_of,
    )


@dataclass(kw_only=True)
class Publisher(threading.Thread):
    """Publishes an edition of every experiment after another, as the walk does."""

    shop: Shop
    ended: threading.Event = field(default_factory=threading.Event)
    editions: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    __hash__ = threading.Thread.__hash__

    def end(self) -> None:
        self.ended.set()
        self.join()

    def run(self) -> None:
        while not self.ended.is_set():
            number = self.editions + 1
            drafts = [edition(name, number) for name in self.shop.experiments]
            # Two steps of the walk, each a transaction of its own.
            with self.shop.engine.begin() as connection:
                stage_evidence(connection, drafts)
            with self.shop.engine.begin() as connection:
                publish_verdicts(connection)
            self.editions = number
            self.ended.wait(_TICK_SECONDS)


@contextmanager
def publishing(shop: Shop) -> Generator[Publisher]:
    publisher = Publisher(shop=shop)
    publisher.start()
    try:
        eventually(lambda: publisher.editions)
        yield publisher
    finally:
        publisher.end()


@dataclass(kw_only=True)
class Reader:
    """A client that polls over several connections, and what it has seen of an experiment."""

    experiment_id: str
    crowd: Crowd
    latest: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    bodies: int = 0
    unchanged: int = 0

    def poll(self) -> None:
        """Reads the verdict, then the evidence, then the verdict if it is another edition."""
        etag = self._see(self._path, self._verdict)[-1].headers["etag"]
        self._see(f"{self._path}/evidence", self._evidence)
        self._see(self._path, self._verdict, unless=etag)

    @property
    def _path(self) -> str:
        return f"/v1/reward/{self.experiment_id}"

    def _see(
        self, path: str, edition_of: Callable[[Answer], int], *, unless: str | None = None
    ) -> Sequence[Answer]:
        """Asks over every connection: nobody reads an edition before the latest."""
        before, answers = self.latest, self.crowd.get(path, unless=unless)
        for answer in answers:
            number = edition_of(answer)
            assert number >= before, f"{path} went back from edition {before} to {number}"
            self.latest = max(self.latest, number)
        return answers

    def _verdict(self, answer: Answer) -> int:
        etag = answer.headers["etag"]
        if answer.status == 304:
            self.unchanged += 1
            return self.numbers[etag]
        number = round(answer.document["confidence"] * 1e6)
        self._require_whole(answer, edition(self.experiment_id, number).contract)
        # A tag for each edition, and each edition's own.
        assert self.numbers.setdefault(etag, number) == number
        return number

    def _evidence(self, answer: Answer) -> int:
        number = answer.document["looks"][0]
        self._require_whole(answer, edition(self.experiment_id, number).document)
        return number

    def _require_whole(self, answer: Answer, published: str) -> None:
        assert (answer.status, answer.body.decode()) == (200, published)
        self.bodies += 1


@pytest.mark.parametrize("workers", [2], ids=["two workers"])
@times(gate=800, deep=100_000)
def test_readers_see_whole_verdicts_each_no_older_than_the_one_before(shop, api, times) -> None:
    with (
        crowd(api.port, shop.keys[KeyKind.PROJECT], size=CONNECTIONS) as connections,
        publishing(shop) as publisher,
    ):
        readers = [Reader(experiment_id=name, crowd=connections) for name in shop.experiments]
        while sum(reader.bodies for reader in readers) < times:
            for reader in readers:
                reader.poll()
        publisher.end()
        for reader in readers:
            reader.poll()
            assert reader.latest == publisher.editions
    print(  # noqa: T201 - the counts that `pytest -rP` shows
        f"{sum(reader.bodies for reader in readers)} answers whole,"
        f" {sum(reader.unchanged for reader in readers)} unchanged,"
        f" {publisher.editions} editions published,"
        f" {sum(len(reader.numbers) for reader in readers)} seen"
    )
    assert all(reader.unchanged >= CONNECTIONS for reader in readers)
    assert all(len(set(reader.numbers.values())) == len(reader.numbers) > 1 for reader in readers)
