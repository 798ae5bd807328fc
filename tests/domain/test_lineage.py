"""Lineage: which changes a commit carries, and where its units stand."""

from datetime import UTC, datetime, timedelta

from domain.lineage.history import CommitFact, History

T0 = datetime(2026, 11, 1, tzinfo=UTC)


def at(minutes: int) -> datetime:
    return T0 + timedelta(minutes=minutes)


def fact(
    commit: str,
    base: str | None = None,
    *,
    recorded: int = 0,
    base_recorded: int | None = None,
    changes: tuple[str, ...] = (),
) -> CommitFact:
    known = recorded if base_recorded is None else base_recorded
    return CommitFact(
        commit=commit,
        changes=frozenset(changes or (commit,)),
        recorded_at=at(recorded),
        base=base,
        base_recorded_at=None if base is None else at(known),
    )


def lineage(*facts: CommitFact, of: str, known: int = 100) -> set[str]:
    return set(History(facts, known_at=at(known)).lineage(of))


def test_two_contradictory_posts_end_rather_than_turn_in_a_circle() -> None:
    assert lineage(fact("a", "b"), fact("b", "a"), of="a") == {"a", "b"}


def test_a_history_longer_than_the_stack_is_no_trouble() -> None:
    facts = [fact("c0"), *(fact(f"c{i}", f"c{i - 1}") for i in range(1, 5_000))]
    assert len(lineage(*facts, of="c4999")) == 5_000
