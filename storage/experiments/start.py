"""Start of an experiment: when exposure begins, and whether the registration came after a look."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, exists, select, text

from domain.lineage.flag import Flag
from domain.policy import BLOCK_MIN_UNITS, UNDECLARED_MIN_UNITS
from domain.registration import Registration
from storage.experiments.hold_backs import held_back_since
from storage.experiments.readings import PastEvents
from storage.schema.encoding import compared_value, on_our_clock
from storage.schema.tables import experiments
from storage.tenants.settings import Settings, frozen_settings

# How many units an analysis block waits for, and how long (docs/statistics.md, 'Counts').
_DECLARED = (BLOCK_MIN_UNITS, timedelta(hours=24))
_UNDECLARED = (UNDECLARED_MIN_UNITS, timedelta(hours=6))


@dataclass(frozen=True, kw_only=True)
class Binding:
    """The scope of an experiment: its environment, start, and change."""

    deploy: Row[Any]
    control_commit: str | None
    change: list[str]
    bound_at: datetime
    events: PastEvents
    flag: Flag | None = None


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The choices of a registration, its defaults filled in, and the settings for the rest."""

    request: Registration
    settings: Settings
    metric: str
    guardrails: Sequence[str]
    registered_at: datetime


@dataclass(frozen=True, kw_only=True)
class Start:
    """When the exposure of an experiment begins.

    Attributes:
        declared_at: The same, where exposure begins with a late registration alone.
    """

    starts_at: datetime
    began_at: datetime
    declared_at: datetime | None
    is_history: bool

    @property
    def late_by(self) -> timedelta:
        """How long after its canary it starts, where it was registered late."""
        return timedelta() if self.declared_at is None else self.starts_at - self.declared_at


def start_of(connection: Connection, project_id: int, binding: Binding, choice: Choice) -> Start:
    """Returns when exposure begins: with the first step of the ramp, or of a flag's being on.

    It begins with the binding where the experiment is repeated, and where it was chosen late.
    History is registered after its events by its nature: it keeps its past.
    """
    environment, bound_at = binding.deploy.environment, binding.bound_at
    declared_at = _declared_at(connection, project_id, binding, choice)
    place = {"project_id": project_id, "environment": environment}
    brought = connection.execute(_HISTORY_UNTIL, place).scalar_one_or_none()
    starts_at, is_late = declared_at, False
    if choice.request.is_portfolio:
        # Users had the treatment long before: units of the old build that came then had it by
        # chance. The binding is meant where no share of the hold-back is declared yet.
        since = held_back_since(
            connection, project_id, environment, binding.control_commit, known_at=bound_at
        )
        starts_at = max(declared_at, since or bound_at)
    elif brought is None or brought < declared_at:
        is_late = _is_chosen_late(connection, project_id, binding, choice, since=declared_at)
    if is_late or _is_repeated(connection, project_id, binding.change, choice.metric):
        starts_at = bound_at
    return Start(
        starts_at=starts_at,
        began_at=declared_at,
        declared_at=declared_at if is_late else None,
        is_history=brought is not None and brought >= starts_at,
    )


_HISTORY_UNTIL = text("""
SELECT newest_at FROM histories WHERE project_id = :project_id AND environment = :environment
""")


def place_of(project_id: int, deploy: Row[Any]) -> dict[str, Any]:
    """Returns the parameters of a statement for a deploy's place in its environment."""
    return {
        "project_id": project_id,
        "environment": deploy.environment,
        "commit": deploy.commit_sha,
        "deployed_at": deploy.deployed_at,
        "recorded_at": deploy.recorded_at,
        "deploy_id": deploy.deploy_id,
    }


_FIRST_FLAGGED = text(f"""
SELECT min({on_our_clock("e")}) FROM runtime_events AS e
WHERE project_id = :project_id AND environment = :environment
  AND {on_our_clock("e")} >= :since AND received_at >= :since
  AND {compared_value("(flags ->> :name)")} = :treatment
  AND (trusted OR signed OR NOT :signed_only)
""")


def _declared_at(
    connection: Connection, project_id: int, binding: Binding, choice: Choice
) -> datetime:
    """Returns when the declaration began: with its first step; of a flag, when it was first on."""
    deploy, flag = binding.deploy, binding.flag
    if flag is None:
        return _first_step(connection, project_id, deploy)
    events = binding.events
    asked = {
        "since": min(deploy.deployed_at, events.past.until),
        "name": flag.name,
        "treatment": flag.treatment,
        "signed_only": choice.settings.signed_assignments,
    }
    first = events.answered(
        "start", lambda: events.rows(_FIRST_FLAGGED, **asked)[0][0], default=None
    )
    return first or binding.bound_at


_FIRST_STEP = text("""
-- A declaration goes on from step to step of a commit's ramp. It is broken by a share of 0, 1 or
-- none, and by another commit that takes over: deployed to everybody, or with no share declared.
WITH earlier AS (
    SELECT commit_sha = :commit AS own, allocation, deployed_at,
        row_number() OVER (ORDER BY deployed_at DESC, recorded_at DESC, deploy_id DESC) AS back
    FROM deploys
    WHERE project_id = :project_id AND environment = :environment AND withdrawn_at IS NULL
      AND (deployed_at, recorded_at, deploy_id) < (:deployed_at, :recorded_at, :deploy_id)
), broken AS (
    SELECT min(back) AS back FROM earlier
    WHERE CASE WHEN own THEN coalesce(allocation IN (0, 1), true)
        ELSE coalesce(allocation = 1, true) END
)
SELECT min(deployed_at) FROM earlier, broken
WHERE own AND (broken.back IS NULL OR earlier.back < broken.back)
""")


def _first_step(connection: Connection, project_id: int, deploy: Row[Any]) -> datetime:
    """Returns when the unbroken declaration began that a deploy belongs to."""
    if deploy.allocation is None or not 0 < deploy.allocation < 1:
        return deploy.deployed_at
    first = connection.execute(_FIRST_STEP, place_of(project_id, deploy)).scalar_one()
    return first or deploy.deployed_at


def _is_repeated(
    connection: Connection, project_id: int, change: Sequence[str], metric: str
) -> bool:
    """Tells whether an experiment on this change and metric was there before: it is not open."""
    return connection.execute(
        select(
            exists().where(
                experiments.c.project_id == project_id,
                experiments.c.change == list(change),
                experiments.c.target_metric == metric,
            )
        )
    ).scalar_one()


_FIRST_CLOSING = text("""
SELECT least(
    (SELECT min(closed_at) FROM (
        SELECT closed_at, sum(sum(sessions)) OVER (ORDER BY block) AS units
        FROM seen_commits
        WHERE project_id = :project_id AND environment = :environment
          AND block > CAST(:since AS timestamptz) - interval '5 minutes'
        GROUP BY block, closed_at
    ) AS seen WHERE units >= :enough),
    -- Where no event came nobody could look.
    (SELECT CAST(:latest AS timestamptz) WHERE EXISTS (
        SELECT FROM runtime_events
        WHERE project_id = :project_id AND environment = :environment
          AND received_at >= :since AND received_at <= :latest
    ))
)
""")


def _is_chosen_late(
    connection: Connection, project_id: int, binding: Binding, choice: Choice, *, since: datetime
) -> bool:
    """Tells whether something that the verdict reads was chosen when it could be seen already.

    By then the exposures of the first analysis block since the declaration had closed.
    """
    deploy, request, settings = binding.deploy, choice.request, choice.settings
    is_declared = deploy.allocation is not None and 0 < deploy.allocation < 1
    enough, longest = _DECLARED if is_declared else _UNDECLARED
    events = binding.events
    since = min(since, events.past.until)
    latest = since + longest + timedelta(seconds=settings.grace_seconds)
    bounds = {"since": since, "enough": enough, "latest": latest}
    # Who cannot be shown to have come before a look came after it.
    closed = events.answered(
        "start", lambda: events.rows(_FIRST_CLOSING, **bounds)[0][0], default=since
    )
    if closed is None or binding.bound_at <= closed:
        return False
    rows = connection.execute(_SETTINGS_BEFORE, {"project_id": project_id, "since": closed})
    before = {row.member: row.before for row in rows}
    held = {*before.get("guardrails", settings.guardrails)}
    control = request.control_commit and binding.control_commit
    named = choice.registered_at > closed and (
        choice.metric != before.get("default_metric", settings.default_metric)
        or request.routes is not None
        or control not in (None, deploy.base_commit)
        or not held <= {choice.metric, *choice.guardrails}
    )
    return named or _has_changed(before, choice)


# The settings that were changed since a time, as they were then.
_SETTINGS_BEFORE = text("""
SELECT DISTINCT ON (changed.member) changed.member, changed.before
FROM audit_trail AS a
CROSS JOIN LATERAL jsonb_to_recordset(a.changes) AS changed (member text, before jsonb)
WHERE a.project_id = :project_id AND a.action = 'settings_changed' AND a.happened_at > :since
ORDER BY changed.member, a.entry_id
""")


def _has_changed(before: Mapping[str, Any], choice: Choice) -> bool:
    """Tells whether settings that the verdict reads are no longer as they were."""
    now = msgspec.to_builtins(choice.settings)
    if any(
        member in before and before[member] != now[member] for member in frozen_settings("whole")
    ):
        return True
    # A new guardrail takes nothing away.
    return any(
        member == f"metrics.{name}" or member.startswith(f"metrics.{name}.")
        for member, value in before.items()
        for name in (choice.metric, *choice.guardrails)
        if name == choice.metric or value is not None
    )
