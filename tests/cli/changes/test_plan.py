"""`plan`: what it promises of a canary is what the test does with it."""

import json

import pytest

from cli.changes.plan import days

WORDS = ["--sessions-per-day", "24000", "--rate", "0.05", "--share", "0.1"]


def test_a_tenth_of_the_sessions_measured_takes_ten_times_the_days(command) -> None:
    whole, tenth = (
        json.loads(command("plan", *WORDS, "--sample-rate", rate, "--json").stdout)
        for rate in ("1", "0.1")
    )
    for each, other in zip(whole["lifts"], tenth["lifts"], strict=True):
        assert other["sessions_to_decide"] == each["sessions_to_decide"]
        assert other["days_to_decide"] == pytest.approx(10 * each["days_to_decide"])
        assert other["days_to_exclude_harm"] == pytest.approx(10 * each["days_to_exclude_harm"])
    assert tenth["smallest_lift_by_horizon"] > whole["smallest_lift_by_horizon"]
    assert tenth["instead"][0]["change"] == "all sessions measured"
    assert tenth["instead"][0]["lifts"] == whole["lifts"]
    assert "10 % are measured" in command("plan", *WORDS, "--sample-rate", "0.1").stdout


def test_every_alternative_is_quicker(command) -> None:
    document = json.loads(command("plan", *WORDS, "--json").stdout)
    for other in document["instead"]:
        for ours, theirs in zip(document["lifts"], other["lifts"], strict=True):
            assert theirs["relative_lift"] == ours["relative_lift"]
            assert theirs["days_to_decide"] < ours["days_to_decide"], other["change"]


def test_a_bundle_of_two_is_a_change_of_twice_the_lift(command) -> None:
    document = json.loads(command("plan", *WORDS, "--json").stdout)
    (bundle,) = (each for each in document["instead"] if each["changes"] == 2)
    needed = {each["relative_lift"]: each["sessions_to_decide"] for each in document["lifts"]}
    assert bundle["lifts"][0]["sessions_to_decide"] == needed[0.1]


def test_a_test_that_is_made_for_small_lifts_finds_them_sooner(command) -> None:
    usual, small = (
        json.loads(command("plan", *WORDS, *more, "--json").stdout)
        for more in ([], ["--typical-lift", "0.05", "--typical-lift", "0.1"])
    )
    assert small["typical_lifts"] == [0.05, 0.1]
    for each, other in zip(usual["lifts"], small["lifts"], strict=True):
        is_small = each["relative_lift"] < 0.2
        assert (other["days_to_decide"] < each["days_to_decide"]) == is_small


def test_the_tables_show_each_lift_and_what_is_beyond_the_horizon(command) -> None:
    shown = command("plan", *WORDS).stdout
    document = json.loads(command("plan", *WORDS, "--json").stdout)
    for lift in document["lifts"]:
        assert f"±{100 * lift['relative_lift']:.0f} %" in shown
        assert f"{lift['sessions_to_decide']:,.0f}" in shown
        assert f"{lift['sessions_to_exclude_harm']:,.0f}" in shown
        assert days(lift["days_to_decide"]) in shown
    for other in document["instead"]:
        assert other["change"] in shown
    assert (days(28.04), days(28.0), days(0.5), days(0.001), days(None)) == (
        "28.0*",
        "28.0",
        "0.50",
        "< 0.01",
        "never",
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--rate", "1"],
        ["--share", "0"],
        ["--sessions-per-day", "0"],
        ["--alpha", "1"],
        ["--sample-rate", "0"],
        ["--typical-lift", "0.1"] * 5,
    ],
)
def test_what_is_no_design_is_a_wrong_call(command, words) -> None:
    assert command("plan", *WORDS, *words).exit_code == 2
