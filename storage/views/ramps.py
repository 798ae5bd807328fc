"""The deploys of a project by ramp: a change with the steps by which it got its traffic."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, FromClause, and_, exists, func, not_, select

from storage.experiments.deploy_record import DeployRecord, StoredDeploy, read_deploys
from storage.experiments.deploys import NOT_WITHDRAWN
from storage.schema.tables import deploys
from storage.views.deploys import NEWEST_FIRST, listed_after

_MOST_STEPS = 24
_SEARCHED = ("sha", "message", "author", "branch", "pull_request")


@dataclass(frozen=True, kw_only=True)
class ListedRamp:
    """A change in an environment: the shares of traffic that it got, in turn.

    Attributes:
        steps: Its deploys as the API shows them, in order, the latest ones; of a change that got
            all traffic at once there is a single step.
    """

    commit: str
    steps: Sequence[DeployRecord]
    is_cut: bool

    @property
    def last(self) -> DeployRecord:
        """The deploy of its last step."""
        return self.steps[-1]


def list_ramps(
    connection: Connection,
    project_id: int,
    *,
    limit: int,
    words: Sequence[str] = (),
    before: str | None = None,
) -> list[ListedRamp]:
    """Returns the ramps of a project, the newest last step first.

    A ramp goes on while the commit has a share between none and all: a share of 0 or 1, or none
    declared, ends it. A deploy between its steps does not.

    Raises:
        Missing: The project has no deploy `before`.
    """
    d, newer = deploys.c, deploys.alias()
    goes_on = and_(
        d.allocation > 0,
        d.allocation < 1,
        exists().where(_same(newer), newer.c.deployed_at > d.deployed_at),
    )
    conditions = [
        d.project_id == project_id,
        NOT_WITHDRAWN,
        not_(func.coalesce(goes_on, False)),
        *_matching(words),
    ]
    if before is not None:
        conditions.append(listed_after(connection, project_id, before))
    ends = select(deploys).where(*conditions).order_by(*NEWEST_FIRST).limit(limit)
    return [_ramp(connection, end) for end in read_deploys(connection, ends)]


def read_ramp_of(
    connection: Connection, project_id: int, deploy: DeployRecord
) -> ListedRamp | None:
    """Returns the whole ramp of a deploy; None of a deploy that was withdrawn as a mistake."""
    d = deploys.c
    own = select(d.commit_sha).where(d.deploy_id == deploy.deploy_id)
    later = read_deploys(
        connection,
        select(deploys)
        .where(
            d.project_id == project_id,
            d.environment == deploy.environment,
            d.commit_sha == own.scalar_subquery(),
            d.deployed_at >= deploy.deployed_at,
            NOT_WITHDRAWN,
        )
        .order_by(d.deployed_at)
        .limit(_MOST_STEPS),
    )
    if not later or later[0].deploy_id != deploy.deploy_id:
        return None
    return _ramp(connection, next((row for row in later if not _goes_on(row)), later[-1]))


def _goes_on(step: StoredDeploy) -> bool:
    return step.allocation is not None and 0 < step.allocation < 1


def _ramp(connection: Connection, end: StoredDeploy) -> ListedRamp:
    """Returns the ramp that a deploy ends."""
    d = deploys.c
    earlier = read_deploys(
        connection,
        select(deploys)
        .where(
            d.project_id == end.project_id,
            d.environment == end.environment,
            d.commit_sha == end.commit_sha,
            d.deployed_at < end.deployed_at,
            NOT_WITHDRAWN,
        )
        .order_by(d.deployed_at.desc())
        .limit(_MOST_STEPS),
    )
    steps = [end]
    for row in earlier:
        if not _goes_on(row):
            break
        steps.append(row)
    shown = steps[:_MOST_STEPS]
    return ListedRamp(
        commit=end.commit_sha,
        steps=[step.record for step in reversed(shown)],
        is_cut=len(steps) > len(shown),
    )


def _same(other: FromClause) -> ColumnElement[bool]:
    """Whether another row is of the same commit in the same environment, and counts."""
    d = deploys.c
    return and_(
        other.c.project_id == d.project_id,
        other.c.environment == d.environment,
        other.c.commit_sha == d.commit_sha,
        other.c.withdrawn_at.is_(None),
    )


def _matching(words: Sequence[str]) -> list[ColumnElement[bool]]:
    """Returns the condition that some deploy of the commit tells all the words."""
    if not words:
        return []
    step = deploys.alias()
    said = func.lower(
        func.concat_ws(
            " ",
            step.c.deploy_id,
            step.c.environment,
            step.c.commit_sha,
            *(step.c.commit.op("->>")(name) for name in _SEARCHED),
        )
    )
    holds = [func.strpos(said, word.lower()) > 0 for word in words]
    return [exists().where(_same(step), *holds)]
