"""The keyring: finds the project of a request's key."""

import asyncio
import contextlib
import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial
from ipaddress import IPv4Network, IPv6Network

from sqlalchemy import Connection
from starlette.requests import Request

from api.runtime.recent import Recent
from api.runtime.store import Store
from api.runtime.trusted_proxies import trusted_networks
from api.wire.problem import Problem
from domain.metric import REVENUE_EVENTS, FrozenMetric, Metric, metric_definition
from storage.postgres.engine import StoreUnavailable
from storage.tenants.audit_trail import Actor
from storage.tenants.keys import (
    Holder,
    KeyKind,
    holder,
    is_well_formed,
    key_actor,
    key_digest,
    note_use,
)
from storage.tenants.sample import Sample, read_sample
from storage.tenants.settings import Settings, read_settings

HEADER = "X-Service-Project-Key"
_CHALLENGE = {"WWW-Authenticate": f'ApiKey realm="deploy-reward", header="{HEADER}"'}
# Below the second within which a revoked key must end.
_REMEMBERED_SECONDS = 0.5
_MOST_REMEMBERED = 10_000
# How often a worker asks whether a key's use must be noted; the store notes it far more seldom.
_NOTED_SECONDS = 60.0


# The member of a request's scope that names its operator. A server makes the scope of each request
# that comes over the network, and puts no such member into it.
OPERATOR = "deploy_reward.operator"


@dataclass(frozen=True, kw_only=True)
class Operator:
    """The login of a command that runs the application in its own process."""

    project_id: int
    actor: Actor


@dataclass(frozen=True, kw_only=True)
class Caller:
    """A project that speaks through a live key, or through an operator, with its settings."""

    project_id: int
    kind: KeyKind
    settings: Settings
    # The digest of its key, in hexadecimal; empty where an operator speaks.
    key: str
    operator: Operator | None = None
    # The units whose events are stored; None for all.
    sample: Sample | None = None

    @cached_property
    def late_after(self) -> timedelta:
        """How old an event is, at its receipt, that no verdict of this project can count."""
        chosen = self.settings
        longest = 0
        for name, metric in self._metrics.items():
            own = chosen.metrics.get(name, Metric()).grace_seconds or 0
            longest = max(longest, metric.window_seconds + max(own, chosen.grace_seconds))
        return timedelta(seconds=longest)

    @cached_property
    def sources(self) -> Collection[str]:
        """The names of events that the project's metrics read."""
        return {event for metric in self._metrics.values() for event in metric.sources}

    @cached_property
    def _metrics(self) -> Mapping[str, FrozenMetric]:
        chosen = self.settings
        names = {*chosen.metrics, chosen.default_metric, *chosen.guardrails, *REVENUE_EVENTS}
        return {name: metric_definition(name, chosen.metrics) for name in names}

    def actor(self, connection: Connection) -> Actor:
        """Returns who changes something by this caller's request."""
        if self.operator is not None:
            return self.operator.actor
        return key_actor(connection, bytes.fromhex(self.key))

    @cached_property
    def trusted_proxies(self) -> list[IPv4Network | IPv6Network]:
        """The proxies whose X-Forwarded-For is believed."""
        return trusted_networks(self.settings)


class Keyring:
    """Finds callers, each key looked up at most once in half a second."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._recent = Recent[bytes, Caller | None](_REMEMBERED_SECONDS, capacity=_MOST_REMEMBERED)
        self._noted: dict[bytes, float] = {}
        self._notes: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Waits for the look-ups under way: they use the store."""
        await self._recent.aclose()
        await asyncio.gather(*self._notes, return_exceptions=True)

    async def caller(self, key: str) -> Caller | None:
        """Returns a key's holder; None when it is unknown or revoked.

        Raises:
            Problem: It cannot be a key.
        """
        digest = key_digest(key)
        if digest not in self._recent and not is_well_formed(key):
            detail = "this is no project key: its prefix, length or checksum is wrong"
            raise Problem("malformed_key", detail, headers=_CHALLENGE)
        # A key that is unknown is not kept: created this instant, it must work the next.
        return await self._recent.read(digest, partial(self._look_up, digest))

    async def operated(self, operator: Operator, kind: KeyKind) -> Caller:
        """Returns the caller that an operator is, with the rights of keys of a kind."""
        speaker = Holder(project_id=operator.project_id, kind=kind)
        return await self._store.run(partial(_caller, speaker=speaker, operator=operator))

    async def _look_up(self, digest: bytes) -> Caller | None:
        caller = await self._store.run(partial(_looked_up, digest=digest))
        if caller is not None:
            self._note_use(digest)
        return caller

    def _note_use(self, digest: bytes) -> None:
        now = time.monotonic()
        if now - self._noted.get(digest, -math.inf) < _NOTED_SECONDS:
            return
        if len(self._noted) >= _MOST_REMEMBERED:
            self._noted.clear()
        self._noted[digest] = now
        # Apart from the look-up: nobody waits for it, and a key works though its use is not noted.
        note = asyncio.create_task(self._note(digest))
        self._notes.add(note)
        note.add_done_callback(self._notes.discard)

    async def _note(self, digest: bytes) -> None:
        with contextlib.suppress(StoreUnavailable):
            await self._store.run(lambda connection: note_use(connection, digest))


def _looked_up(connection: Connection, digest: bytes) -> Caller | None:
    speaker = holder(connection, digest)
    return None if speaker is None else _caller(connection, speaker, key=digest.hex())


def _caller(
    connection: Connection, speaker: Holder, *, key: str = "", operator: Operator | None = None
) -> Caller:
    settings = read_settings(connection, speaker.project_id)
    return Caller(
        project_id=speaker.project_id,
        kind=speaker.kind,
        settings=settings,
        key=key,
        operator=operator,
        sample=read_sample(connection, speaker.project_id, settings),
    )


def _presented_key(request: Request, *, bearer: bool, query: bool, inside: str | None) -> str:
    """Returns the key that a request carries."""
    keys = {*request.headers.getlist(HEADER), *([] if inside is None else [inside])}
    if bearer:
        for value in request.headers.getlist("Authorization"):
            scheme, _, credential = value.partition(" ")
            if scheme.lower() == "bearer":
                keys.add(credential.strip())
    if query and request.scope["query_string"]:
        keys.update(request.query_params.getlist("key"))
    if not keys:
        raise Problem("missing_key", f"send a project key in {HEADER}", headers=_CHALLENGE)
    if len(keys) > 1:
        raise Problem("differing_keys", "the request carries two keys", headers=_CHALLENGE)
    return keys.pop()


async def admitted(
    request: Request,
    *kinds: KeyKind,
    bearer: bool = False,
    query: bool = False,
    inside: str | None = None,
) -> Caller:
    """Returns the caller of a request that only keys of some kinds may make.

    Raises:
        Problem: There is no key (401), no such live key (401), or it is of another kind (403).
    """
    keyring: Keyring = request.scope["state"]["runtime"].keyring
    operator: Operator | None = request.scope.get(OPERATOR)
    if operator is not None:
        caller = await keyring.operated(operator, kinds[0])
    else:
        key = _presented_key(request, bearer=bearer, query=query, inside=inside)
        caller = await keyring.caller(key)
    if caller is None:
        raise Problem("unknown_key", "the key is unknown or revoked", headers=_CHALLENGE)
    if caller.kind not in kinds:
        allowed = " or ".join(f"a {kind.value} key" for kind in kinds)
        raise Problem("wrong_key_kind", f"this takes {allowed}, not a {caller.kind.value} key")
    request.scope["state"]["project_id"] = caller.project_id
    return caller
