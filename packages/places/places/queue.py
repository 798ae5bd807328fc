"""The queue of places: a change asks, gets a flag or a share, and gives it back once answered."""

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import msgspec
from sqlalchemy import Connection, and_, insert, text, update

from domain.contract import Contract, contract_of
from domain.draw import FLAG_SHARE
from domain.evidence.breach import suspicion
from domain.evidence.document import Evidence, evidence_of
from domain.lineage.flag import Flag
from domain.measure import excludes_loss
from domain.planning.place import ACCEPT_HARM, PATIENCE_HOURS, PlaceKind, PlaceOutcome
from domain.registration import Registration
from domain.words import AbstainReason, Action, Verdict
from places.capacity import Capacity, canary_room, read_capacity
from places.listing import read_place
from storage.experiments.actions import close
from storage.experiments.commit_ids import commit_named
from storage.experiments.experiments import register
from storage.experiments.rules import require_control, require_unlocked
from storage.experiments.serving import standing_commit
from storage.postgres.refusal import Conflict, Missing, Refusal
from storage.postgres.rows import value_of
from storage.releases.canary import declared_canaries
from storage.schema.clock import store_time
from storage.schema.tables import places
from storage.tenants.default_metric import default_metric
from storage.tenants.settings import Lockable, Settings, lock_project, read_settings
from storage.upkeep.passing_error import is_passing
from storage.upkeep.place_announcements import announce_place
from storage.verdicts.set_aside import error_line

MOST_OPEN = 2000
# How long a run goes on with the places of a project, in seconds.
_PLACES_SECONDS = 20.0
_LOG = logging.getLogger(__name__)
_ANSWERS: Mapping[str, PlaceOutcome] = {
    Verdict.KEEP: "keep",
    Verdict.ROLLBACK: "rollback",
    Verdict.ITERATE: "iterate",
}


@dataclass(frozen=True, kw_only=True)
class PlaceRequest:
    """A place as it is asked for, by a flag, a commit or both: then whichever is free first.

    Attributes:
        accept_harm: The share of control's rate whose loss must be excluded before an undecided
            change gives its place back.
        patience_hours: How long it has the place at most.
    """

    change: str
    environment: str
    flag: Flag | None
    commit: str | None
    metric: str | None
    actor: str | None
    accept_harm: float
    patience_hours: float

    @property
    def members(self) -> dict[str, Any]:
        """The request as a row keeps it."""
        kept = asdict(self)
        return {name: kept[name] for name in kept if name not in {"change", "environment"}}


_NEWEST = text("""
SELECT place_id, request - 'actor' AS request, ended_at IS NULL AS open FROM places
WHERE project_id = :project_id AND environment = :environment AND change = :change
ORDER BY asked_at DESC LIMIT 1
""")
_OPEN_PLACES = text("SELECT count(*) FROM places WHERE project_id = :id AND ended_at IS NULL")


def ask(
    connection: Connection, project_id: int, request: PlaceRequest, *, again: bool = False
) -> tuple[str, bool]:
    """Returns the place of a change, and whether it was made now; the same words have the same.

    Raises:
        Conflict: It has a place that was asked for otherwise, or too many wait.
        Locked: It chooses a member that the project keeps for itself.
        Refusal: No experiment can be made of it.
    """
    lock_project(connection, project_id)
    chosen: Mapping[Lockable, bool] = {
        "accept_harm": request.accept_harm != ACCEPT_HARM,
        "patience": request.patience_hours != PATIENCE_HOURS,
    }
    settings = read_settings(connection, project_id)
    require_unlocked(settings, chosen)
    require_control(settings, request.flag, of="/flag")
    if request.commit is not None:
        commit_named(connection, project_id, request.commit)
    where = {"project_id": project_id, "environment": request.environment, "change": request.change}
    known = connection.execute(_NEWEST, where).one_or_none()
    same = known is not None and {**known.request, "actor": request.actor} == request.members
    if known is not None and known.open and not same:
        raise Conflict(
            "place_open",
            f"place {known.place_id} of this change was asked for with other members; end it first",
        )
    if known is not None and same and (known.open or not again):
        return known.place_id, False
    if connection.execute(_OPEN_PLACES, {"id": project_id}).scalar_one() >= MOST_OPEN:
        raise Conflict("queue_full", f"{MOST_OPEN} changes of this project have a place or wait")
    place_id = f"pl_{secrets.token_hex(10)}"
    connection.execute(
        insert(places).values(
            **where, place_id=place_id, request=request.members, asked_at=store_time(connection)
        )
    )
    refused: dict[str, Refusal] = {}
    advance(connection, project_id, only=place_id, refused=refused)
    if place_id in refused:
        raise refused[place_id]
    return place_id, True


def give_back(connection: Connection, project_id: int, place_id: str) -> None:
    """Ends a place by hand, or leaves the queue; an ended place stays as it ended.

    Raises:
        Missing: The project has no such place.
    """
    advance(connection, project_id, given_back=place_id)
    known = text("SELECT FROM places WHERE project_id = :project_id AND place_id = :place_id")
    bound = {"project_id": project_id, "place_id": place_id}
    if connection.execute(known, bound).one_or_none() is None:
        raise Missing("unknown_place", "there is no such place")


_WITH_PLACES = text("SELECT DISTINCT project_id FROM places WHERE ended_at IS NULL ORDER BY 1")


def projects_with_places(connection: Connection) -> list[int]:
    """Returns the projects with open places."""
    return list(connection.execute(_WITH_PLACES).scalars())


# Before any takes the log's lock: the pipeline waits for that, and may have locked such a row.
_CLAIM = text("""
SELECT FROM experiments JOIN places USING (experiment_id)
WHERE places.project_id = :id AND ended_at IS NULL
ORDER BY experiment_id FOR NO KEY UPDATE OF experiments
""")
_OPEN = text("""
SELECT place_id, kind, share, experiment_id, placed_at, closed_at, verdict, decided,
    v.contract::text AS contract, v.evidence::text AS evidence,
    p.request || jsonb_build_object('environment', p.environment, 'change', p.change) AS request
FROM places AS p LEFT JOIN experiments AS x USING (experiment_id)
LEFT JOIN verdicts AS v USING (experiment_id)
WHERE p.project_id = :project_id AND p.ended_at IS NULL
ORDER BY p.asked_at, p.place_id
""")


def advance(
    connection: Connection,
    project_id: int,
    *,
    given_back: str | None = None,
    only: str | None = None,
    at: datetime | None = None,
    refused: dict[str, Refusal] | None = None,
) -> bool:
    """Ends the answered places, else gives free ones to the changes that wait longest.

    Closing or registering an experiment takes the log's lock until the transaction ends, and the
    pipeline waits for that. So a transaction closes some, or registers a single change.
    Returns whether another transaction may find more to do.

    Args:
        connection: In a transaction.
        only: The place that may be given; None for any.
        at: When the run began: a place that it gives ends in a later run; None for now.
    """
    lock_project(connection, project_id)
    connection.execute(_CLAIM, {"id": project_id})
    now = at or store_time(connection)
    queue = _Queue(connection=connection, project_id=project_id, now=now)
    return queue.advance(given_back, only, {} if refused is None else refused)


class _OpenPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place that has not ended, with the verdict on its change."""

    place_id: str
    request: PlaceRequest
    kind: PlaceKind | None
    share: float | None
    experiment_id: str | None
    placed_at: datetime | None
    closed_at: datetime | None
    verdict: str | None
    decided: bool | None
    contract: str | None
    evidence: str | None


@dataclass(kw_only=True)
class _Queue:
    """The open places of a project."""

    connection: Connection
    project_id: int
    now: datetime
    rows: list[_OpenPlace] = field(init=False)

    def __post_init__(self) -> None:
        rows = self.connection.execute(_OPEN, {"project_id": self.project_id})
        self.rows = [value_of(_OpenPlace, row) for row in rows]

    @cached_property
    def settings(self) -> Settings:
        return read_settings(self.connection, self.project_id)

    @cached_property
    def default_metric(self) -> str:
        """The target of a place that names none: revenue may tell it, which is read once."""
        return default_metric(self.connection, self.project_id, self.settings)

    def advance(
        self, given_back: str | None, only: str | None, refused: dict[str, Refusal]
    ) -> bool:
        open_rows: list[_OpenPlace] = []
        closed = False
        for row in self.rows:
            outcome = "given_back" if row.place_id == given_back else _outcome(row, self.now)
            if outcome is None:
                open_rows.append(row)
            else:
                closed = self._end(row, outcome) or closed
        return closed or any(
            self._tried(row, refused, kind, **given)
            for row, kind, given in self._turns(open_rows)
            if only in (None, row.place_id)
        )

    def _turns(
        self, open_rows: Sequence[_OpenPlace]
    ) -> Iterator[tuple[_OpenPlace, PlaceKind, dict[str, float | None]]]:
        """Yields the changes that can be placed, and the placed ones that can be registered."""
        placed = [row for row in open_rows if row.kind is not None]
        for environment in {row.request.environment for row in open_rows}:
            here = [row for row in placed if row.request.environment == environment]
            waiting = [
                row
                for row in open_rows
                if row.kind is None and row.request.environment == environment
            ]
            for row, kind, share, hours in self._free(environment, here, waiting):
                yield row, kind, {"share": share, "expected_hours": hours}
        for row in placed:
            if row.kind and row.experiment_id is None and self._deployed(row) is not None:
                yield row, row.kind, {}

    def _free(
        self, environment: str, placed: Sequence[_OpenPlace], waiting: Sequence[_OpenPlace]
    ) -> Iterator[tuple[_OpenPlace, PlaceKind, float, float | None]]:
        """Yields the changes that get a free flag or share, the longest wait first."""
        if not waiting:
            return
        flags = self.settings.flag_places - self._flags_taken(environment, placed)
        room = canary_room(self._share_taken(environment, placed))
        # The changes of a single commit can't be separated: all but the first wait.
        taken = {self._known(row) for row in placed if row.kind == "canary"}
        capacities: dict[str, Capacity] = {}
        for row in waiting:
            if flags <= 0 and room <= 0:
                return
            request, metric = row.request, row.request.metric or self.default_metric
            if metric not in capacities:
                capacities[metric] = read_capacity(
                    self.connection,
                    self.project_id,
                    environment,
                    metric=metric,
                    settings=self.settings,
                )
            capacity, harm = capacities[metric], request.accept_harm
            if request.flag is not None and flags > 0:
                flags -= 1
                yield row, "flag", FLAG_SHARE, capacity.hours("flag", FLAG_SHARE, harm)
            elif request.commit is not None and (commit := self._known(row)) not in taken:
                taken.add(commit)
                share = capacity.canary_share(harm, request.patience_hours)
                # A request for a large share is not overtaken by later ones.
                room -= share
                if room >= -1e-9:
                    yield row, "canary", share, capacity.hours("canary", share, harm)

    def _flags_taken(self, environment: str, placed: Sequence[_OpenPlace]) -> int:
        bound = {
            "project_id": self.project_id,
            "environment": environment,
            "own": [row.experiment_id for row in placed],
        }
        others = self.connection.execute(_OTHER_FLAGS, bound).scalar_one()
        return others + sum(row.kind == "flag" for row in placed)

    def _share_taken(self, environment: str, placed: Sequence[_OpenPlace]) -> float:
        own = [row for row in placed if row.kind == "canary"]
        commits = {self._known(row) for row in own}
        declared = declared_canaries(self.connection, self.project_id, environment)
        standing = standing_commit(self.connection, self.project_id, environment)
        others = [
            canary.share
            for canary in declared
            if canary.commit != standing
            and commits.isdisjoint(self._brought(environment, canary.commit))
        ]
        return sum(others) + sum(row.share or 0.0 for row in own)

    def _brought(self, environment: str, commit: str) -> Collection[str]:
        """Returns a commit and the changes that it brings."""
        bound = {"project_id": self.project_id, "environment": environment, "commit": commit}
        changes = self.connection.execute(_CHANGES, bound).scalar_one_or_none()
        return {commit, *(changes or ())}

    def _known(self, row: _OpenPlace) -> str:
        commit = row.request.commit or ""
        try:
            return commit_named(self.connection, self.project_id, commit)
        except Conflict:
            return commit

    def _deployed(self, row: _OpenPlace) -> str | None:
        """Returns the newest commit that was deployed with a canary's change, and no other."""
        bound = {
            "project_id": self.project_id,
            "environment": row.request.environment,
            "commit": self._known(row),
        }
        return self.connection.execute(_DEPLOYED, bound).scalar_one_or_none()

    def _tried(
        self, row: _OpenPlace, refused: dict[str, Refusal], kind: PlaceKind, **given: float | None
    ) -> bool:
        """Places a change, and tells whether it was registered; a refusal ends its place alone."""
        try:
            with self.connection.begin_nested():
                return self._place(row, kind, **given)
        except Refusal as refusal:
            refused[row.place_id] = refusal
            return self._end(row, "refused", detail=refusal.detail)

    def _place(self, row: _OpenPlace, kind: PlaceKind, **given: float | None) -> bool:
        request = row.request
        commit = self._deployed(row) if kind == "canary" else None
        experiment_id = None
        if kind == "flag" or commit is not None:
            registration = Registration(
                treatment_commit=commit,
                treatment_flag=request.flag if kind == "flag" else None,
                target_metric=request.metric,
                actor=request.actor,
                environment=row.request.environment,
            )
            experiment_id = register(self.connection, self.project_id, registration).experiment_id
        changed = {"experiment_id": experiment_id, **given}
        if row.placed_at is not None:
            self._update(row, changed)
        else:
            self._update(row, {**changed, "kind": kind, "placed_at": self.now})
            self._announce(row)
        return experiment_id is not None

    def _end(self, row: _OpenPlace, outcome: PlaceOutcome, *, detail: str | None = None) -> bool:
        """Ends a place, and tells whether that closed its experiment."""
        self._update(row, {"ended_at": self.now, "outcome": outcome, "detail": detail})
        self._announce(row)
        if row.experiment_id is None or row.decided:
            return False
        close(self.connection, self.project_id, row.experiment_id)
        return True

    def _update(self, row: _OpenPlace, changed: Mapping[str, Any]) -> None:
        own = and_(places.c.project_id == self.project_id, places.c.place_id == row.place_id)
        self.connection.execute(update(places).where(own).values(**changed))

    def _announce(self, row: _OpenPlace) -> None:
        place = read_place(self.connection, self.project_id, row.place_id)
        metric = place.metric or self.default_metric
        announce_place(self.connection, self.project_id, place, metric=metric)


_OTHER_FLAGS = text("""
SELECT count(*) FROM experiments AS x JOIN verdicts AS v USING (experiment_id)
WHERE x.project_id = :project_id AND x.environment = :environment AND NOT v.decided
  AND x.closed_at IS NULL AND jsonb_exists(x.request, 'treatment_flag')
  AND x.experiment_id <> ALL(CAST(:own AS text[]))
""")
_CHANGES = text("""
SELECT changes FROM commits
WHERE project_id = :project_id AND environment = :environment AND commit_sha = :commit
""")
_DEPLOYED = text("""
SELECT c.commit_sha FROM commits AS c
JOIN deploys AS d USING (project_id, environment, commit_sha)
WHERE project_id = :project_id AND environment = :environment AND d.withdrawn_at IS NULL
  AND (commit_sha = :commit OR c.changes = ARRAY[CAST(:commit AS text)])
ORDER BY d.deployed_at DESC, d.recorded_at DESC LIMIT 1
""")


def _outcome(row: _OpenPlace, now: datetime) -> PlaceOutcome | None:
    """Returns how a place ends; None while it does not."""
    if row.placed_at is None:
        return None
    if (answer := _ANSWERS.get(row.verdict or "")) is not None:
        return answer
    if row.contract is not None and (early := _early(contract_of(row.contract), row)):
        return early
    is_over = now >= row.placed_at + timedelta(hours=row.request.patience_hours)
    return "unanswered" if row.decided or row.closed_at is not None or is_over else None


def _early(contract: Contract, row: _OpenPlace) -> PlaceOutcome | None:
    """Returns how a place ends before a verdict; None where it goes on.

    It does where a loss beyond the accepted share is excluded, as for `wait --accept-harm`; and
    where a harm is suspected on which the project goes back: else it goes on, and is no promotion.
    """
    if contract.abstain_reason != AbstainReason.POWER:
        return None
    evidence = evidence_of(row.evidence)
    if (action := suspicion(evidence)) is not None:
        return "suspected" if action is Action.ROLL_BACK and not contract.decided else None
    numbers = evidence if isinstance(evidence, Evidence) else None
    is_harmless = not contract.guardrail_breaches and excludes_loss(
        numbers, row.request.accept_harm
    )
    return "harmless" if is_harmless else None


def advance_places(begin: Callable[[], AbstractContextManager[Connection]]) -> None:
    """Ends the places that verdicts answered, and gives them to the changes that wait.

    Each registration has a transaction of its own. A project gets its share of a run's time, and
    goes on in the next; an error of its data stops it alone.

    Args:
        begin: Begins a transaction, which no other writer of derived tables waits for.
    """
    with begin() as connection:
        projects, at = projects_with_places(connection), store_time(connection)
    for project_id in projects:
        ends_at = time.monotonic() + _PLACES_SECONDS
        is_more = True
        while is_more and time.monotonic() < ends_at:
            try:
                with begin() as connection:
                    is_more = advance(connection, project_id, at=at)
            except Exception as error:  # a project must not stop the others
                if is_passing(error):
                    raise
                is_more = False
                _LOG.warning("places of project %s wait: %s", project_id, error_line(error))
