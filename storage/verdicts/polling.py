"""Polls: the cached verdicts that many clients ask for at once, read together."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from psycopg import AsyncConnection

from storage.postgres.batching import Batcher
from storage.postgres.refusal import Missing
from storage.verdicts.publication import PublishedVerdict

_READ = """
SELECT verdicts.project_id, verdicts.experiment_id, contract::text, decided, next_look_at,
    published_at
FROM unnest(%s::integer[], %s::text[]) AS asked (project_id, experiment_id)
JOIN verdicts USING (project_id, experiment_id)
"""


@dataclass(frozen=True, slots=True)
class _Poll:
    project_id: int
    experiment_id: str


class VerdictReader:
    """Reads cached verdict rows: one query, begun after they were asked for, for all that wait."""

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
    connection: AsyncConnection[Any], polls: Sequence[_Poll]
) -> Sequence[PublishedVerdict | None]:
    distinct = set(polls)
    cursor = await connection.execute(
        _READ,
        ([poll.project_id for poll in distinct], [poll.experiment_id for poll in distinct]),
        prepare=True,
    )
    rows = await cursor.fetchall()
    verdicts = {
        _Poll(project_id, experiment_id): PublishedVerdict(
            experiment_id=experiment_id,
            contract=contract,
            decided=decided,
            next_look_at=next_look_at,
            published_at=published_at,
        )
        for project_id, experiment_id, contract, decided, next_look_at, published_at in rows
    }
    return [verdicts.get(poll) for poll in polls]
