"""A canary whose control left users' traffic is known by deploys and by the sessions seen."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from domain.lineage.control_state import BaseMove, control_state
from domain.lineage.history import CommitFact, History
from domain.lineage.serving import ReleaseStep, SeenCommit, Serving

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
BASE, A, B, HOTFIX, REBASED = "base0000", "aaaaaaaa", "bbbbbbbb", "cccccccc", "dddddddd"


def _history(*links: tuple[str, str | None, frozenset[str]]) -> History:
    facts = [
        CommitFact(
            commit=commit, changes=changes, recorded_at=NOON, base=base, base_recorded_at=NOON
        )
        for commit, base, changes in links
    ]
    return History(facts, known_at=NOON + timedelta(days=1))


HISTORY = _history(
    (BASE, None, frozenset({BASE})),
    (A, BASE, frozenset({A})),
    (B, BASE, frozenset({B})),
    (HOTFIX, BASE, frozenset({HOTFIX})),
    (REBASED, B, frozenset({A})),
)


def _steps(*steps: tuple[str, float | None]) -> list[ReleaseStep]:
    return [
        ReleaseStep(commit=commit, allocation=share, deployed_at=NOON + timedelta(hours=number))
        for number, (commit, share) in enumerate(steps)
    ]


def _move_of_a(
    *steps: tuple[str, float | None],
    change: frozenset[str] = frozenset({A}),
    seen: Mapping[str, int] | None = None,
) -> BaseMove | None:
    now = NOON + timedelta(hours=len(steps))
    serving = Serving(
        _steps(*steps),
        [
            SeenCommit(block=now - timedelta(minutes=10), commit=commit, sessions=sessions)
            for commit, sessions in (seen or {}).items()
        ],
        history=HISTORY,
        at=now,
    )
    beside = control_state(
        serving, HISTORY, treatment=A, control=BASE, change=change, compared=True
    )
    return beside.moved


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([(BASE, None), (A, 0.1), (B, 0.1)], None, id="canaries beside one base"),
        pytest.param([(BASE, None), (A, 0.1), (B, 0.1), (B, 1)], B, id="another is promoted"),
        pytest.param([(BASE, None), (A, 0.1), (HOTFIX, None)], HOTFIX, id="a hotfix for everybody"),
        pytest.param([(BASE, None), (A, 0.1), (B, 0.1), (A, 1)], None, id="it is promoted itself"),
        pytest.param([(BASE, None), (A, 0.1), (A, 0), (B, 1)], None, id="it was withdrawn before"),
        pytest.param(
            [(BASE, None), (A, 0.1), (B, 1), (BASE, 0.1)], None, id="the old base is kept beside"
        ),
        pytest.param(
            [(BASE, None), (A, 0.1), (B, 1), (REBASED, 0.1), (A, 0)], None, id="it was rebased"
        ),
        pytest.param([(BASE, None), (A, 0.1), (B, 1), (BASE, 1)], None, id="rolled back to it"),
    ],
)
def test_a_base_has_moved_where_no_build_is_left_to_compare_a_canary_with(steps, expected) -> None:
    move = _move_of_a(*steps)
    assert (None if move is None else move.rebase_on) == expected


@pytest.mark.parametrize(
    ("steps", "seen", "expected"),
    [
        pytest.param(
            [(BASE, None), (A, None), (B, 0.1), (B, 1)], {A: 10, B: 90}, B, id="undeclared canary"
        ),
        pytest.param(
            [(BASE, None), (A, 0.1), (B, None)], {BASE: 45, A: 10, B: 45}, None, id="half and half"
        ),
        pytest.param([(BASE, None), (A, 0.1), (B, None)], {A: 10, B: 90}, B, id="nearly all"),
        pytest.param([(BASE, None), (A, 0.1), (B, None)], {BASE: 1, B: 9}, None, id="too few"),
        pytest.param(
            [(BASE, None), (A, 0.1), (HOTFIX, 0.1)], {A: 10, HOTFIX: 90}, HOTFIX, id="no post"
        ),
    ],
)
def test_what_was_seen_tells_where_no_deploy_declares_who_gets_a_build(
    steps, seen, expected
) -> None:
    move = _move_of_a(*steps, seen=seen)
    assert (None if move is None else move.rebase_on) == expected


def test_a_move_names_what_to_post_and_whether_the_experiment_goes_on() -> None:
    steps = ((BASE, None), (A, 0.1), (B, 1))
    alone = _move_of_a(*steps)
    assert alone is not None
    assert (list(alone.changes), alone.continues, alone.since) == (
        [A],
        True,
        NOON + timedelta(hours=2),
    )
    # A does not carry B here, so that nothing served carries the change: it is no canary's.
    assert _move_of_a(*steps, change=frozenset({A, B})) is None
