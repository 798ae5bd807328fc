"""A metric: the rules of its own grace, and how long its outcomes stay open."""

from typing import Any

import msgspec
import pytest

from domain.metric import DAY, SO_FAR, FrozenMetric, Metric, companions_of, metric_definition


def frozen(grace: int, **chosen: Any) -> FrozenMetric:
    metric = Metric(window_seconds=3600, **chosen)
    return metric_definition("order", {"order": metric}, grace=grace)


@pytest.mark.parametrize("seconds", [-1, 604_801])
def test_a_grace_lies_between_none_and_seven_days(seconds) -> None:
    with pytest.raises(ValueError, match=rf"grace_seconds is {seconds}: between 0 and 604800"):
        Metric(grace_seconds=seconds)


@pytest.mark.parametrize("chosen", [{}, {"grace_seconds": 0}, {"grace_seconds": 120}])
def test_a_grace_no_longer_than_the_project_s_freezes_the_same_bytes(chosen) -> None:
    definition = frozen(120, **chosen)
    assert b"grace_seconds" not in msgspec.json.encode(definition)
    assert definition.seconds_open(grace=120) == 3600


@pytest.mark.parametrize(
    ("own", "open_for"), [(121, 3900), (420, 3900), (421, 4200), (604_800, 608_400)]
)
def test_a_longer_one_exceeds_the_project_s_by_whole_blocks(own, open_for) -> None:
    definition = frozen(120, grace_seconds=own)
    assert definition.seconds_open(grace=120) == open_for
    assert open_for % 300 == 0
    assert open_for + 120 >= 3600 + own


@pytest.mark.parametrize(
    ("chosen", "days"),
    [
        ({"window_seconds": 14 * DAY}, 4),
        ({"window_seconds": 4 * DAY}, 1),
        ({"window_seconds": 14 * DAY, "kind": "mean"}, 4),
        # The window passes soon, or fewer outcomes are no loss.
        ({"window_seconds": 3 * DAY}, None),
        ({"window_seconds": 14 * DAY, "better": "lower"}, None),
        ({"window_seconds": 14 * DAY, "kind": "ratio", "per": ["visit"]}, None),
        ({"window": {"from": "7d", "to": "14d"}}, None),
    ],
)
def test_a_slow_metric_is_read_after_a_quarter_of_its_window(chosen, days) -> None:
    target = metric_definition("paid", {"paid": Metric(**chosen)})
    companions = companions_of(
        target, unit="user", every_event=True, is_history=False, history=None, is_adjusted=False
    )
    early = [each.window_seconds for each in companions if each.role == SO_FAR]
    assert early == ([] if days is None else [days * DAY])
