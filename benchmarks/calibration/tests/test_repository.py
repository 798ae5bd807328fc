"""The repository of the benchmarks: a team's changes against a real service, in simulated time."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.repository.__main__ import repository
from benchmarks.repository.change import Build, Change
from benchmarks.repository.sessions import Served


def simulated(*options: str) -> dict[str, Any]:
    result = CliRunner().invoke(repository, ["--json", *options])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.process
@pytest.mark.nightly
def test_changes_that_halve_the_rate_are_rolled_back_and_what_they_cost_is_said() -> None:
    document = simulated(
        *("--days", "0.1", "--sessions-per-day", "40000", "--commits-per-day", "100"),
        *("--flags", "1", "--harmful", "1"),
        *("--hotfixes-per-day", "0", "--remote-evaluation", "0.1", "--seed", "1"),
    )
    fates = document["canaries"]["fates"]
    assert fates.get("rolled back", 0) >= 1
    assert "kept" not in fates
    assert document["sessions that asked for their arms"] > 200
    assert document["units that are not in the arm drawn for them"] == 0
    assert document["commits"]["seconds of the service's CPU for each"] > 0
    rolled_back = [row for row in document["harmful"] if row["fate"] == "rolled back"]
    assert all(0.5 < row["hours until withdrawn"] < 3.2 for row in rolled_back)
    assert all(0 < row["share of all sessions"] < 0.5 for row in rolled_back)
    intervals = document["intervals"]
    assert intervals["intervals"] > 0
    assert intervals["that hold the true lift"] == intervals["intervals"]


def test_promoted_changes_leave_the_rate_of_the_standing_build_as_it_was() -> None:
    gain, next_gain = (Change(name=name, effect=0.5) for name in ("a", "b"))
    standing = Build(commit="1", lineage=(gain,))
    canary = Build(commit="2", lineage=(gain, next_gain))
    served = Served(baseline=0.2, builds=[(standing, 0.9), (canary, 0.1)], flags=[])
    assert served.rate(standing) == 0.2
    assert served.rate(canary) == pytest.approx(0.3)
