"""A portfolio as an agent reads it: in a kilobyte, whatever it holds, and the whole first."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from domain.ledger.portfolio import (
    Portfolio,
    PortfolioEffect,
    PortfolioMeasurement,
    PortfolioShare,
)
from mcp_server.explanation import LONGEST_BYTES, as_json
from mcp_server.portfolio import portfolio
from tests.repetition import examples

SHAS = st.from_regex(r"[0-9a-f]{7,64}", fullmatch=True) | st.just("4f2a9c1d" * 8)
LIFTS = st.none() | st.floats(-0.99, 30)
MEASUREMENTS = st.builds(
    PortfolioMeasurement,
    experiment_id=st.from_regex(r"exp_[0-9a-f]{20}", fullmatch=True),
    change=st.lists(SHAS, min_size=1, max_size=3).map(tuple),
    claimed=LIFTS,
    effect=LIFTS,
)
SHARES = st.builds(
    PortfolioShare,
    share=st.sampled_from([0.05, 0.1, 0.2]),
    lift=st.floats(0.001, 3),
    days=st.none() | st.floats(0.01, 1e6),
)
EFFECTS = st.builds(
    PortfolioEffect,
    relative=LIFTS,
    interval=st.none() | st.tuples(st.floats(-1, 1), st.floats(1, 9)),
    as_of=st.none(),
)


@st.composite
def documents(draw: st.DrawFn) -> Portfolio:
    document = draw(
        st.builds(
            Portfolio,
            as_of=st.datetimes(),
            metric=st.from_regex(r"[a-z0-9_]{1,64}", fullmatch=True),
            standing=SHAS,
            standing_deploy=st.just("dep_0123456789abcdef0123"),
            treatment=SHAS,
            hold_back=SHAS,
            hold_back_share=st.none() | st.sampled_from([0.0, 0.1, 1.0]),
            share=SHARES,
            changes=st.integers(1, 10**6),
            measurements=st.lists(MEASUREMENTS, max_size=12).map(tuple),
            kept=st.integers(0, 12),
            claimed=st.floats(-1, 99),
            expected=st.floats(-1, 99),
            experiment_id=st.just("exp_0123456789abcdef0123"),
            starts_at=st.none(),
            effect=st.none() | EFFECTS,
        )
    )
    if draw(st.booleans()):
        return document
    return structs.replace(
        document, experiment_id=None, decided=None, follow_up=None, effect=None, moved_on=False
    )


@examples(gate=40, deep=1000)
@given(document=documents())
def test_it_is_at_most_a_kilobyte_and_single_changes_are_left_out_first(document) -> None:
    answer = portfolio(document)
    assert len(as_json(answer.model_dump())) <= LONGEST_BYTES
    steps = len(portfolio(structs.replace(document, measurements=())).steps)
    assert (answer.begin is None) == (document.experiment_id is not None)
    assert len(answer.changes) + len(answer.steps) + answer.left_out >= len(document.measurements)
    assert not answer.changes or len(answer.steps) == steps
