"""The cap of a mean: chosen from the values before the start, so that no whale hides a change."""

import pytest

from tests.world import DAY, A, K


def registered(story, values: list[float], *, cap: float | None = None) -> str:
    """An experiment on what sessions spend; these were spent before its start."""
    spent = {"kind": "mean", "sources": ["paid"], **({} if cap is None else {"cap": cap})}
    story.settings(metrics={"spent": spent})
    story.deploy(A, minutes=-DAY)
    for value, session in zip(
        values, story.units_of(A, minutes=-300, units=len(values)), strict=True
    ):
        paid = next(e for e in story.events if e["session_id"] == session)
        story.events.append({**paid, "event": "paid", "value": value})
    story.deploy(K, minutes=0, base=A)
    for commit in (A, K):
        for number, session in enumerate(story.units_of(commit, minutes=10, units=60)):
            paid = next(e for e in story.events if e["session_id"] == session)
            story.events.append({**paid, "event": "paid", "value": -1e9 if number else 1e9})
    return story.judged(target_metric="spent", minutes=DAY)


@pytest.mark.parametrize(
    ("values", "cap"),
    [
        ([10.0] * 19, None),
        ([0.0] * 50, None),
        ([10.0] * 19 + [500_000.0], 200.0),
        ([1.0] * 90 + [300.0] * 10, 300.0),
        ([-10.0] * 20, 200.0),
        ([float(value) for value in range(1, 1001)], 990.0),
    ],
)
def test_a_cap_is_chosen_from_the_values_before_the_start(story, values, cap) -> None:
    evidence = story.evidence(registered(story, values))
    assert evidence["policy"]["target"]["cap"] == cap
    assert ("uncapped" in evidence["warnings"]) == (cap is None)


def test_a_value_is_clipped_on_both_sides_and_a_named_cap_is_kept(story) -> None:
    evidence = story.evidence(registered(story, [10.0] * 30, cap=7.0))
    assert evidence["policy"]["target"]["cap"] == 7.0
    for arm in evidence["arms"].values():
        assert arm["total"] == 7.0 - 59 * 7.0
    # All units paid, in both arms: the yes/no twin stands beside the mean.
    assert evidence["yes_no"]["lift"] == 0.0
    assert evidence["yes_no"]["e_value"] <= 1
