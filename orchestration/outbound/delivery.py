"""A round of deliveries: sends due announcements to webhooks; a slow receiver delays no other."""

import asyncio
import os
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from sqlalchemy import Connection, Engine

from orchestration.outbound.payload import body_of
from orchestration.outbound.receiver import Unanswered, open_tls, post
from storage.tenants.attestations import WebhookSecrets
from storage.tenants.webhook import Webhook
from storage.verdicts.deliveries import (
    Attempt,
    claim_attempt,
    give_up_exhausted,
    note_delivered,
    note_failed,
    note_postponed,
)

_AT_ONCE = 8
# With another exchange, a round stays well under the minute that Dagster gives a tick, and under
# the shortest wait, after which an attempt would count as broken off.
ROUND_SECONDS = 10.0
# A secret or a token that is missing on our side comes with a restart.
_POSTPONED = timedelta(minutes=1)
_GONE = 410

ResultT = TypeVar("ResultT")


@dataclass(kw_only=True)
class Round:
    """The result of a round: counts of delivered and abandoned announcements, and of problems."""

    delivered: int = 0
    given_up: int = 0
    problems: Counter[str] = field(default_factory=Counter[str])

    def as_text(self) -> str:
        """Returns the round in a line, empty where nothing was due."""
        done = {"delivered": self.delivered, "given up": self.given_up}
        parts = [f"{count} {outcome}" for outcome, count in done.items() if count]
        parts += [f"{count} × {problem}" for problem, count in sorted(self.problems.items())]
        return "; ".join(parts)


class _Lacking(Exception):  # noqa: N818 - nothing is wrong with the webhook
    """Something on our side that sending needs is not there."""


def deliver(
    engine: Engine, *, secret: bytes | None, environment: Mapping[str, str] = os.environ
) -> Round:
    """Sends due announcements, for `ROUND_SECONDS` and the end of the exchanges then under way.

    Any number may deliver at once, and may be killed at any point: an attempt is noted before it
    is made, and made again where no end of it was noted. So each announcement arrives at least
    once, always under the same `webhook-id`.
    """
    return asyncio.run(_Sending(engine, secret=secret, environment=environment).run())


class _Sending:
    def __init__(
        self, engine: Engine, *, secret: bytes | None, environment: Mapping[str, str]
    ) -> None:
        self._engine = engine
        self._secrets = None if secret is None else WebhookSecrets(secret)
        self._environment = environment
        self._round = Round()
        self._tls: ssl.SSLContext | None = None
        # A receiver that is slow or dead takes a single place of the eight, for a single exchange.
        self._avoided: set[str] = set()
        self._ends_at = time.monotonic() + ROUND_SECONDS

    async def run(self) -> Round:
        self._round.given_up += await self._in_store(give_up_exhausted)
        under_way: set[asyncio.Task[None]] = set()
        while time.monotonic() < self._ends_at:
            attempt = None if len(under_way) == _AT_ONCE else await self._claimed()
            if attempt is not None:
                self._avoided.add(attempt.target)
                under_way.add(asyncio.create_task(self._make(attempt)))
            elif under_way:
                ended, under_way = await asyncio.wait(
                    under_way, return_when=asyncio.FIRST_COMPLETED
                )
                await asyncio.gather(*ended)
            else:
                break
        await asyncio.gather(*under_way)
        return self._round

    async def _claimed(self) -> Attempt | None:
        avoided = frozenset(self._avoided)
        return await self._in_store(lambda c: claim_attempt(c, avoided=avoided))

    async def _make(self, attempt: Attempt) -> None:
        """Makes an attempt, and frees its target for the next where that promises anything."""
        if attempt.webhook is None:
            await self._failed(attempt, "the project has no such webhook any more", final=True)
            self._avoided.discard(attempt.target)
        elif await self._arrived(attempt, attempt.webhook):
            self._round.delivered += 1
            self._avoided.discard(attempt.target)

    async def _arrived(self, attempt: Attempt, webhook: Webhook) -> bool:
        try:
            headers, body = self._request(attempt, webhook)
        except _Lacking as lack:
            problem = str(lack)
            self._round.problems[problem] += 1
            await self._in_store(lambda c: note_postponed(c, attempt, problem, wait=_POSTPONED))
            return False
        if self._tls is None:
            self._tls = open_tls()
        try:
            answer = await post(
                webhook.url, body, headers=headers, private=webhook.may_be_private, tls=self._tls
            )
        except Unanswered as reason:
            await self._failed(attempt, f"{webhook.host}: {reason}")
            return False
        if answer.taken:
            await self._in_store(lambda c: note_delivered(c, attempt))
            return True
        await self._failed(
            attempt,
            f"{webhook.host}: status {answer.status}",
            wait=answer.retry_after,
            final=answer.status == _GONE,
        )
        return False

    def _request(self, attempt: Attempt, webhook: Webhook) -> tuple[dict[str, str], bytes]:
        body = body_of(attempt.announcement, webhook.format)
        headers = self._signed(attempt, body) if webhook.format == "raw" else {}
        if webhook.format == "github":
            headers |= {
                "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": "2022-11-28",
            }
        if webhook.token_variable is not None:
            token = self._environment.get(webhook.token_variable)
            if not token:
                raise _Lacking(f"{webhook.token_variable} is not set")
            headers["Authorization"] = f"Bearer {token}"
        return headers, body

    def _signed(self, attempt: Attempt, body: bytes) -> dict[str, str]:
        if self._secrets is None:
            raise _Lacking(
                "no signature: neither SERVICE_SECRET nor the data directory's secret is there"
            )
        announcement, timestamp = attempt.announcement, int(attempt.at.timestamp())
        return {
            "webhook-id": announcement.announcement_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": self._secrets.signature(
                announcement.project_id,
                webhook_id=announcement.announcement_id,
                timestamp=timestamp,
                body=body,
            ),
        }

    async def _failed(
        self, attempt: Attempt, problem: str, *, wait: timedelta = timedelta(0), final: bool = False
    ) -> None:
        self._round.problems[problem] += 1
        over = await self._in_store(
            lambda c: note_failed(c, attempt, problem, wait=wait, final=final)
        )
        self._round.given_up += over

    async def _in_store(self, work: Callable[[Connection], ResultT]) -> ResultT:
        """Returns what `work` returns in a transaction of its own, committed by then."""

        def transaction() -> ResultT:
            with self._engine.begin() as connection:
                return work(connection)

        return await asyncio.to_thread(transaction)
