"""Lineage: which changes a commit carries, and where its units stand."""

from datetime import UTC, datetime

from domain.lineage.history import CommitFact, History

T0 = datetime(2026, 11, 1, tzinfo=UTC)


def lineage(of: str, *links: tuple[str, str | None]) -> set[str]:
    """The lineage of a commit, of commits and the base of each."""
    facts = [
        CommitFact(
            commit=c, changes=frozenset({c}), recorded_at=T0, base=b, base_recorded_at=b and T0
        )
        for c, b in links
    ]
    return set(History(facts, known_at=T0).lineage(of))


def test_two_contradictory_posts_end_rather_than_turn_in_a_circle() -> None:
    assert lineage("a", ("a", "b"), ("b", "a")) == {"a", "b"}


def test_a_history_longer_than_the_stack_is_no_trouble() -> None:
    links = ((f"c{i}", f"c{i - 1}" if i else None) for i in range(1500))
    assert len(lineage("c1499", *links)) == 1500
