"""A page of the list fits into a kilobyte whatever the experiments are called."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from domain.listing import VerdictList
from mcp_server.explanation import LONGEST_BYTES, as_json
from mcp_server.listing import MOST, fits, listing, room
from tests.mcp_server.contracts import WAITING, listed_row
from tests.repetition import examples

IDS = st.from_regex(r"[0-9A-Za-z_-]{1,128}", fullmatch=True)
METRICS = st.text(min_size=1, max_size=128) | st.just("é" * 128) | st.just("\x01" * 128)
ROWS = st.fixed_dictionaries(
    {
        "experiment_id": IDS | st.just("e" * 128),
        "treatment_commit": st.none() | st.just("4f2a9c1d" * 8),
        "metric": METRICS,
        "contract": st.just(WAITING | {"abstain_reason": "non_identifiable"}),
    }
)
# A cursor of the service holds a time and an identifier.
CURSORS = st.none() | st.just("c" * 220)


def page(rows: list[dict[str, Any]], cursor: str | None) -> Any:
    listed = [listed_row(**row) for row in rows]
    return listing(msgspec.convert({"experiments": listed, "next_cursor": cursor}, VerdictList))


@examples(gate=15, deep=400)
@given(rows=st.lists(ROWS, max_size=MOST), cursor=CURSORS)
def test_a_page_that_does_not_fit_is_followed_by_one_that_does(
    rows: list[dict[str, Any]], cursor: str | None
) -> None:
    result = page(rows, cursor)
    while not fits(result):
        fewer = room(result)
        assert 0 < fewer < len(result.experiments)
        result = page(rows[:fewer], cursor)
    assert len(as_json(result.model_dump())) <= LONGEST_BYTES
    assert bool(result.experiments) == bool(rows)


@examples(gate=15, deep=400)
@given(rows=st.lists(ROWS, min_size=1, max_size=MOST), cursor=CURSORS)
def test_what_finds_an_experiment_is_never_shortened(
    rows: list[dict[str, Any]], cursor: str | None
) -> None:
    shown = [listed.experiment_id for listed in page(rows, cursor).experiments]
    assert shown == [row["experiment_id"] for row in rows]
