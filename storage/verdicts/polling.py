"""Polls: the cached verdicts that many clients ask for at once, read together."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Self

from psycopg.pq.abc import PGresult

from storage.postgres.batching import Batcher
from storage.postgres.exchange import Exchange
from storage.postgres.refusal import Missing
from storage.schema.encoding import EPOCH, MICROSECOND, epoch_microseconds
from storage.verdicts.publication import PublishedVerdict

_READ = f"""
SELECT project_id, experiment_id, contract::text, decided,
    {epoch_microseconds("published_at")}, {epoch_microseconds("next_look_at")}
FROM unnest($1::integer[], $2::text[]) AS asked (project_id, experiment_id)
JOIN verdicts USING (project_id, experiment_id)
""".encode()
_QUOTED = str.maketrans({'"': r"\"", "\\": r"\\"})


@dataclass(frozen=True, slots=True)
class _Poll:
    project_id: int
    experiment_id: str


class VerdictReader:
    """Reads cached verdict rows: a query for all that wait, begun after they asked."""

    def __init__(self, url: str) -> None:
        self._batcher: Batcher[_Poll, PublishedVerdict | None] = Batcher(url, _published)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[Self]:
        """Runs the reader."""
        async with self._batcher.running():
            yield self

    async def read(self, project_id: int, experiment_id: str) -> PublishedVerdict:
        """Returns the verdict of an experiment, never computed here.

        Raises:
            Missing: The project has no such experiment.
            StoreUnavailable: The store cannot be reached.
        """
        verdict = await self._batcher.submit(_Poll(project_id, experiment_id))
        if verdict is None:
            raise Missing("unknown_experiment", "there is no such experiment")
        return verdict


async def _published(
    exchange: Exchange, polls: Sequence[_Poll]
) -> Sequence[PublishedVerdict | None]:
    distinct = set(polls)
    ids = ",".join([str(poll.project_id) for poll in distinct])
    names = ",".join([f'"{poll.experiment_id.translate(_QUOTED)}"' for poll in distinct])
    result = await exchange.prepared(_READ, [f"{{{ids}}}".encode(), f"{{{names}}}".encode()])
    verdicts = dict(_verdict(result, row) for row in range(result.ntuples))
    return [verdicts.get(poll) for poll in polls]


def _verdict(result: PGresult, row: int) -> tuple[_Poll, PublishedVerdict]:
    # No column is null but the next look.
    project_id, name, contract, decided, published_at, next_look_at = (
        result.get_value(row, column) or b"" for column in range(result.nfields)
    )
    verdict = PublishedVerdict(
        experiment_id=name.decode(),
        contract=contract.decode(),
        decided=decided == b"t",
        next_look_at=EPOCH + int(next_look_at) * MICROSECOND if next_look_at else None,
        published_at=EPOCH + int(published_at) * MICROSECOND,
    )
    return _Poll(int(project_id), verdict.experiment_id), verdict
