"""Hold-backs: builds that a share of the units keeps, though users have all their changes."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection

from domain.lineage.serving import Serving
from storage.experiments.serving import read_serving, standing_commit

_EVER = datetime.max.replace(tzinfo=UTC)
_SHORT = 12


def later_build(
    connection: Connection,
    project_id: int,
    environment: str,
    commit: str,
    *,
    deployed_at: datetime = _EVER,
    serving: Serving | None = None,
) -> str | None:
    """Returns the build that users have instead of a hold-back; None where a commit is none.

    A declared share of a commit is a hold-back where another build, which users have, carries all
    its changes, and users had them already when the share was declared. A canary that a hotfix was
    built on has its changes in what users have, too, but only since.

    Args:
        serving: The builds of now, where they are read already.
    """
    serving = serving or read_serving(connection, project_id, environment)
    since = serving.held_back_since(commit)
    if since is None or deployed_at < since:
        return None
    history, standing = serving.history, serving.standing(besides=commit)
    own, now = history.lineage(commit), None if standing is None else standing.commit
    if now is None or not own <= history.lineage(now):
        return None
    before = since - timedelta(microseconds=1)
    then = standing_commit(connection, project_id, environment, until=before)
    return None if then is None or not own <= history.lineage(then) else now


def nothing_to_judge(commit: str, later: str) -> str:
    """Returns why a hold-back has no verdict of its own, for a person."""
    return (
        f"{commit[:_SHORT]} is a hold-back: users have {later[:_SHORT]}, which carries all its"
        " changes, so there is nothing to judge"
    )
