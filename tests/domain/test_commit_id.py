"""Commit ids: a single commit however much of it is written, several where it begins several."""

from datetime import UTC, datetime, timedelta

from domain.lineage.commit_id import CommitId, CommitIds, ambiguous

T0 = datetime(2026, 11, 1, tzinfo=UTC)
WHOLE, TWIN, OTHER = (f"abcdef01{digit}".ljust(40, digit) for digit in "234")


def at(minutes: int) -> datetime:
    return T0 + timedelta(minutes=minutes)


def known(*written: tuple[str, str, int]) -> CommitIds:
    """Ids as (commit, id, when recorded)."""
    return CommitIds(
        CommitId(commit=commit, id=each, recorded_at=at(minutes))
        for commit, each, minutes in written
    )


def meant(ids: CommitIds, written: str, *, minutes: int = 100) -> list[str]:
    result = ids.meant(written, known_at=at(minutes))
    return sorted(each.commit for each in result)


def test_a_commit_is_known_by_the_longest_of_its_ids_from_when_that_was_recorded() -> None:
    short = WHOLE[:8]
    ids = known((short, short, 0), (short, WHOLE, 10))
    assert meant(ids, TWIN, minutes=9) == [short]
    assert meant(ids, TWIN, minutes=10) == []
    assert meant(ids, WHOLE, minutes=9) == meant(ids, WHOLE, minutes=10) == [short]


def test_ids_of_one_commit_that_were_recorded_as_two_stay_two() -> None:
    short = WHOLE[:8]
    ids = known((short, short, 0), (WHOLE, WHOLE, 0))
    assert (meant(ids, short), meant(ids, WHOLE)) == ([short], [WHOLE])


def test_of_many_commits_the_sentence_names_a_few() -> None:
    commits = [f"abcdef0{digit}" for digit in "0123456"]
    assert "begins 7 commits: " in ambiguous("abcdef0", commits)
    assert "abcdef04 and 2 more." in ambiguous("abcdef0", commits)
