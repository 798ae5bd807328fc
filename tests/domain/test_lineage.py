"""Lineage: which changes a commit carries, and where its units stand."""

import json
from datetime import UTC, datetime, timedelta

from domain.lineage.arm import assign
from domain.lineage.commit_id import CommitId, CommitIds
from domain.lineage.flag import Flag
from domain.lineage.history import CommitFact, History
from storage.pipeline.assignments import KnownHistory, Question

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


def ids(*commits: str) -> CommitIds:
    return CommitIds(CommitId(commit=each, id=each, recorded_at=at(0)) for each in commits)


def lineage(*facts: CommitFact, of: str, known: int = 100) -> set[str]:
    return set(History(facts, known_at=at(known)).lineage(of))


def test_a_commit_carries_its_own_changes_and_those_of_its_bases() -> None:
    assert lineage(fact("a"), fact("k", "a"), fact("m", "k"), of="m") == {"m", "k", "a"}


def test_a_base_that_was_never_deployed_is_known_by_being_named() -> None:
    assert lineage(fact("k", "a"), of="k") == {"k", "a"}
    assert "a" in History([fact("k", "a")], known_at=at(1)).commits


def test_a_rebased_change_is_the_same_change_on_another_base() -> None:
    facts = (fact("a"), fact("b", "a"), fact("k", "a"), fact("k2", "b", changes=("k",)))
    assert lineage(*facts, of="k2") == {"k", "b", "a"}


def test_what_is_recorded_later_was_not_known_before() -> None:
    facts = (fact("a"), fact("k", "a", recorded=5))
    assert History(facts, known_at=at(4)).commits == {"a"}
    assert History(facts, known_at=at(5)).commits == {"a", "k"}


def test_a_base_named_later_counts_from_then_on() -> None:
    late = fact("k", "a", base_recorded=9)
    assert lineage(late, of="k", known=8) == {"k"}
    assert lineage(late, of="k", known=9) == {"k", "a"}


def test_two_contradictory_posts_end_rather_than_turn_in_a_circle() -> None:
    assert lineage(fact("a", "b"), fact("b", "a"), of="a") == {"a", "b"}


def test_a_history_longer_than_the_stack_is_no_trouble() -> None:
    facts = [fact("c0"), *(fact(f"c{i}", f"c{i - 1}") for i in range(1, 5_000))]
    assert len(lineage(*facts, of="c4999")) == 5_000


def test_arms_follow_from_the_change_and_strata_from_the_rest() -> None:
    change = frozenset({"k1", "k2"})
    assert assign(change, frozenset({"k1", "k2", "a"})).arm == "treatment"
    assert assign(change, frozenset({"a"})).arm == "control"
    assert assign(change, frozenset({"k1", "a"})).arm == "partial"
    treated = assign(change, frozenset({"k1", "k2", "a"}))
    assert treated.stratum == assign(change, frozenset({"a"})).stratum == {"a"}


def test_a_commit_stands_nowhere_until_it_is_known() -> None:
    histories = KnownHistory([fact("a"), fact("k", "a", recorded=30)], ids=ids("a", "k"))
    change = frozenset({"k"})
    (only,) = histories.assignments(Question(change=change, bound_at=at(10)), "k")
    assert (only.known_from, only.known_to, only.arm) == (at(30), None, "treatment")
    (known,) = histories.assignments(Question(change=change, bound_at=at(10)), "a")
    assert (known.known_from, known.arm) == (at(10), "control")


def test_a_base_named_later_splits_the_placement_in_time() -> None:
    histories = KnownHistory([fact("a"), fact("k", "a", base_recorded=30)], ids=ids("a", "k"))
    first, second = histories.assignments(Question(change=frozenset({"k"}), bound_at=at(10)), "k")
    assert (first.known_from, first.known_to) == (at(10), at(30))
    assert (second.known_from, second.known_to) == (at(30), None)
    assert first.stratum != second.stratum


FLAG = Flag(name="new_cart", treatment="true")


def arm_of(served: str, *, flag: Flag = FLAG, **flags: datetime) -> tuple[str, str]:
    histories = KnownHistory([fact("a")], ids=ids("a"), flags={"new_cart": at(0), **flags})
    question = Question(change=frozenset({flag.change}), bound_at=at(10), flag=flag)
    (result,) = histories.assignments(question, "a", values=json.loads(served))
    return result.arm, result.stratum


def test_one_build_with_a_flag_has_both_arms_in_one_stratum() -> None:
    treated, control = arm_of('{"new_cart": "true"}'), arm_of('{"new_cart": "false"}')
    assert (treated[0], control[0]) == ("treatment", "control")
    assert treated[1] == control[1]


def test_an_event_without_the_flag_is_in_neither_arm() -> None:
    assert arm_of("{}")[0] == "unassigned"


def test_a_third_value_of_a_flag_is_neither_arm_where_control_is_named() -> None:
    flag = Flag(name="new_cart", treatment="blue", control="red")
    assert arm_of('{"new_cart": "blue"}', flag=flag)[0] == "treatment"
    assert arm_of('{"new_cart": "red"}', flag=flag)[0] == "control"
    assert arm_of('{"new_cart": "green"}', flag=flag)[0] == "partial"
    assert arm_of("{}", flag=flag)[0] == "unassigned"


def test_another_experiment_s_flag_is_a_stratum_of_its_own() -> None:
    alone = arm_of('{"new_cart": "true", "other": "on"}')
    beside = arm_of('{"new_cart": "true", "other": "on"}', other=at(0))
    assert alone[0] == beside[0] == "treatment"
    assert alone[1] != beside[1]
