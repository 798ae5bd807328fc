"""A canary whose control left users' traffic is told so, with the commit to rebase on."""

from datetime import UTC, datetime, timedelta

import pytest

from domain.lineage.base_move import ReleaseStep, base_move
from domain.lineage.history import CommitFact, History

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


def _move_of_a(*steps: tuple[str, float | None]) -> str | None:
    move = base_move(
        _steps(*steps),
        HISTORY,
        treatment=A,
        change=frozenset({A}),
        tested=frozenset({A, B}),
    )
    return None if move is None else move.rebase_on


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([(BASE, None), (A, 0.1), (B, 0.1)], None, id="canaries beside one base"),
        pytest.param([(BASE, None), (A, 0.1), (B, 0.1), (B, 1)], B, id="another is promoted"),
        pytest.param([(BASE, None), (A, None), (B, 0.1), (B, 1)], B, id="undeclared canary"),
        pytest.param([(BASE, None), (A, 0.1), (B, None)], None, id="another undeclared canary"),
        pytest.param([(BASE, None), (A, 0.1), (B, 0.1), (B, None)], B, id="its declaration ends"),
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
def test_a_base_has_moved_where_no_build_is_left_to_compare_a_canary_with(
    steps: list[tuple[str, float | None]], expected: str | None
) -> None:
    assert _move_of_a(*steps) == expected


def test_a_move_names_what_to_post_and_whether_the_experiment_goes_on() -> None:
    steps = _steps((BASE, None), (A, 0.1), (B, 1))
    alone = base_move(steps, HISTORY, treatment=A, change=frozenset({A}), tested=frozenset({A, B}))
    joint = base_move(
        steps, HISTORY, treatment=A, change=frozenset({A, B}), tested=frozenset({A, B})
    )

    assert alone is not None
    assert (list(alone.changes), alone.continues, alone.since) == (
        [A],
        True,
        NOON + timedelta(hours=2),
    )
    # A does not carry B here, so that nothing served carries the change: it is no canary's.
    assert joint is None
