"""Hold-backs: builds that a share of the units keeps, though users have all their changes."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection

from storage.experiments.histories import read_history
from storage.experiments.portfolio import held_back_since
from storage.experiments.serving import standing_commit

_EVER = datetime.max.replace(tzinfo=UTC)
_SHORT = 12


def later_build(
    connection: Connection,
    project_id: int,
    environment: str,
    commit: str,
    *,
    deployed_at: datetime = _EVER,
) -> str | None:
    """Returns the build that users have instead of a hold-back; None where a commit is none.

    A declared share of a commit is a hold-back where another build, which users have, carries all
    its changes, and users had them already when the share was declared. A canary that a hotfix was
    built on has its changes in what users have, too, but only since.

    Args:
        connection: To the store.
        project_id: Whose.
        environment: Where.
        commit: The commit.
        deployed_at: Of its deploy in question: a deploy from before the hold-back is a canary's.
    """
    since = held_back_since(connection, project_id, environment, commit, known_at=_EVER)
    if since is None or deployed_at < since:
        return None
    now = standing_commit(connection, project_id, environment, besides=commit)
    before = since - timedelta(microseconds=1)
    then = standing_commit(connection, project_id, environment, until=before)
    history = read_history(connection, project_id, environment, known_at=_EVER)
    own = history.lineage(commit)
    for build in (now, then):
        if build is None or not own <= history.lineage(build):
            return None
    return now


def nothing_to_judge(commit: str, later: str) -> str:
    """Returns why a hold-back has no verdict of its own, for a person."""
    return (
        f"{commit[:_SHORT]} is a hold-back: users have {later[:_SHORT]}, which carries all its"
        " changes, so there is nothing to judge"
    )
