"""The record's quantiles are true to a percent, whatever durations it gets, in any order."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.traffic.run_record import Durations, Posted, RunRecord


@given(
    seconds=st.lists(st.floats(1e-5, 1e3), min_size=1, max_size=200),
    share=st.sampled_from([0.5, 0.9, 0.99, 1.0]),
)
def test_a_quantile_is_true_to_one_percent(seconds, share) -> None:
    durations = Durations()
    for each in seconds:
        durations.add(each)
    exact = float(np.quantile(seconds, share, method="inverted_cdf"))
    assert exact * 0.99 <= durations.quantile(share) <= exact * 1.011


def test_no_duration_has_no_quantile() -> None:
    assert math.isnan(Durations().quantile(0.5))
    assert Durations().milliseconds() is None


def test_a_request_that_was_sent_again_counts_once_and_its_attempts_each() -> None:
    record = RunRecord()
    record.attempt(503, size=100, again=False)
    record.attempt(None, size=100, again=True)
    record.attempt(202, size=100, again=True)
    record.land(Posted(requests=1, events=7, accepted=6, rejected=1), since_due=2.0, since_sent=0.5)
    entry = record.document(2.0)
    assert entry["statuses"] == {"202": 1, "503": 1, "none": 1}
    counts = [entry[name] for name in ("requests", "events", "accepted", "rejected")]
    assert counts == [1, 7, 6, 1]
    assert (entry["retries"], entry["bytes_sent"], entry["events_per_second"]) == (2, 300, 3.5)
    assert entry["milliseconds_from_due"]["max"] == pytest.approx(2000)
    assert entry["milliseconds_from_sent"]["max"] == pytest.approx(500)
