"""The ids of commits: which commit of a project somebody means who writes some of its id."""

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

from sqlalchemy import Connection, func, insert, select, text, update

from domain.lineage.commit_id import SHORTEST, CommitId, CommitIds, ambiguous
from storage.postgres.refusal import Conflict
from storage.postgres.rows import value_of
from storage.schema.tables import commit_ids, experiments, verdicts

_LONG_AGO = datetime.min.replace(tzinfo=UTC)
EVER = datetime.max.replace(tzinfo=UTC)


_ALL = text("SELECT * FROM commit_ids WHERE project_id = ANY(:projects)")
_LIKE = text(f"""
SELECT * FROM commit_ids
WHERE project_id = ANY(:projects) AND left(id, {SHORTEST}) = ANY(:beginnings)
""")


def read_commit_ids(
    connection: Connection, projects: Iterable[int], *, like: Collection[str] | None = None
) -> dict[int, CommitIds]:
    """Returns each project's commits by id, as far as the ids `like` need them; None for all."""
    wanted = sorted(set(projects))
    if not wanted:
        return {}
    ids: dict[int, list[CommitId]] = {project_id: [] for project_id in wanted}
    beginnings = sorted({written[:SHORTEST] for written in like or ()})
    query = _ALL if like is None else _LIKE
    for row in connection.execute(query, {"projects": wanted, "beginnings": beginnings}):
        ids[row.project_id].append(value_of(CommitId, row, commit=row.commit_sha))
    return {project_id: CommitIds(of_project) for project_id, of_project in ids.items()}


def commits_meant(connection: Connection, project_id: int, written: str) -> Sequence[CommitId]:
    """Returns the longest id of each commit that an id may mean now."""
    ids = read_commit_ids(connection, [project_id], like=[written])
    return ids[project_id].meant(written, known_at=EVER)


def commit_meant(connection: Connection, project_id: int, written: str) -> str | None:
    """Returns the commit that an id means; None where it is unknown.

    Raises:
        Conflict: It begins several.
    """
    return commits_of(connection, project_id, [written])[written]


def commits_of(
    connection: Connection, project_id: int, written: Collection[str]
) -> dict[str, str | None]:
    """Returns the commit that each of some ids means; None where it is unknown."""
    ids = read_commit_ids(connection, [project_id], like=written)[project_id]
    return {each: the_commit(each, ids.meant(each, known_at=EVER)) for each in written}


def the_commit(written: str, meant: Sequence[CommitId]) -> str | None:
    """Returns the commit that an id means among those that it may mean; None where it is unknown.

    Raises:
        Conflict: It begins several.
    """
    if len(meant) > 1:
        raise Conflict("ambiguous_commit", ambiguous(written, (known.id for known in meant)))
    return meant[0].commit if meant else None


def commit_named(connection: Connection, project_id: int, written: str) -> str:
    """Returns the known commit that an id means, else as an open experiment writes it."""
    if (commit := commit_meant(connection, project_id, written)) is not None:
        return commit
    awaited = set(_awaited(connection, project_id).values())
    ids = CommitIds(CommitId(commit=each, id=each, recorded_at=_LONG_AGO) for each in awaited)
    return the_commit(written, ids.meant(written, known_at=EVER)) or written


def whole_id(connection: Connection, project_id: int, commit: str) -> str:
    """Returns the longest id of a commit that is known."""
    ids = select(commit_ids.c.id).where(
        commit_ids.c.project_id == project_id, commit_ids.c.commit_sha == commit
    )
    longest = ids.order_by(func.length(commit_ids.c.id).desc()).limit(1)
    return connection.execute(longest).scalar_one_or_none() or commit


def remember_commit_ids(
    connection: Connection, project_id: int, written: Iterable[str], *, recorded_at: datetime
) -> dict[str, str]:
    """Returns the commit that each id means, which becomes known by as much as it writes of it.

    Events and registrations make no more known of a commit: anybody may send an event, and a slip
    in a registration would part a commit from its true id.
    """
    asked = list(dict.fromkeys(written))
    ids = read_commit_ids(connection, [project_id], like=asked)[project_id]
    commits: dict[str, str] = {}
    fresh: list[CommitId] = []
    for each in asked:
        meant = ids.meant(each, known_at=EVER)
        commits[each] = the_commit(each, meant) or each
        if not meant or len(meant[0].id) < len(each):
            fresh.append(CommitId(commit=commits[each], id=each, recorded_at=recorded_at))
            ids.add(fresh[-1])
    _remember(connection, project_id, fresh)
    return commits


def remember_new_id(
    connection: Connection, project_id: int, written: str, *, recorded_at: datetime
) -> None:
    """Makes a commit known by an id that means none so far, without reading any."""
    fresh = CommitId(commit=written, id=written, recorded_at=recorded_at)
    _remember(connection, project_id, [fresh])


def _remember(connection: Connection, project_id: int, fresh: Sequence[CommitId]) -> None:
    rows = [
        {
            "project_id": project_id,
            "commit_sha": known.commit,
            "id": known.id,
            "recorded_at": known.recorded_at,
        }
        for known in fresh
    ]
    if rows:
        connection.execute(insert(commit_ids), rows)


def recognize_awaited(connection: Connection, project_id: int, commit: str) -> None:
    """Lets the experiments that wait for a commit, however they write it, wait for it by its id."""
    for experiment_id, written in _awaited(connection, project_id).items():
        meant = commits_meant(connection, project_id, written)
        if written != commit and [known.commit for known in meant] == [commit]:
            connection.execute(
                update(experiments)
                .where(
                    experiments.c.project_id == project_id,
                    experiments.c.experiment_id == experiment_id,
                )
                .values(treatment_commit=commit)
            )


def _awaited(connection: Connection, project_id: int) -> dict[str, str]:
    """Returns the experiments that wait for the deploy of a commit that they name, with that."""
    x = experiments.c
    rows = connection.execute(
        select(x.experiment_id, x.treatment_commit)
        .join_from(experiments, verdicts)
        .where(
            x.project_id == project_id,
            x.bound_at.is_(None),
            x.treatment_commit.is_not(None),
            verdicts.c.decided.is_(False),
        )
    )
    return {row.experiment_id: row.treatment_commit for row in rows}
