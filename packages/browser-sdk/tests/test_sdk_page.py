"""The SDK's file does what docs/sending.md shows of it."""

import re
from pathlib import Path

import pytest
from canary_traffic.posting import PASSING

from tests.clients.page import blocks, page

PAGE = page("sending.md")
SOURCE = (Path(__file__).parents[1] / "sdk.js").read_text()


def rows(heading: str) -> list[str]:
    """What stands in backticks in the first column of a section's tables."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    columns = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    return [name for column in columns for name in re.findall(r"`([^`]+)`", column)]


@pytest.mark.requirement("key.public.variable")
def test_a_build_of_next_js_hands_over_the_public_key_of_its_variable() -> None:
    (snippet,) = blocks(PAGE, "tsx")
    read = dict(re.findall(r"(data-\w+)=\{\s*process\.env\.(\w+)", snippet))
    assert read["data-key"] == "NEXT_PUBLIC_SERVICE_KEY"
    # The file takes what each of these attributes says as the option of that name.
    assert {name.removeprefix("data-") for name in read} <= set(rows("Options"))
    (described,) = re.findall(r"^\| `key` \|(.*)\|$", PAGE, re.MULTILINE)
    assert re.findall(r"NEXT_PUBLIC_\w+", described) == [read["data-key"]]


def test_every_option_and_call_is_named_and_no_other() -> None:
    (taken,) = re.findall(r"const \{ (assignment[^}]+) \} = options", SOURCE)
    options = {part.split(":")[0].strip() for part in taken.split(",")}
    options |= set(re.findall(r"options\.(\w+)", SOURCE))
    (calls,) = re.findall(r"const calls = \{ ([^}]+) \}", SOURCE)
    shown = rows("Options")
    assert {name for name in shown if "." not in name} == options
    named = {re.sub(r"deployReward\.(\w+).*", r"\1", name) for name in shown if "." in name}
    assert named == {*calls.split(", "), "push"} - {"init"}


def test_every_event_is_named_and_no_other() -> None:
    sent = set(re.findall(r'track\("(\w+)"[,)]', SOURCE))
    (poor,) = re.findall(r"POOR = \{([^}]+)\}", SOURCE)
    vitals = dict(re.findall(r"(\w+): ([\d.]+)", poor))
    assert set(rows("What it sends")) == sent | vitals.keys() | {f"poor_{name}" for name in vitals}
    assert f"over {', '.join(vitals.values())}" in PAGE


def test_what_is_sent_again_is_what_our_own_client_sends_again() -> None:
    (shown,) = re.findall(r"PASSING = \[([\d, ]+)\]", SOURCE)
    assert {int(status) for status in shown.split(",")} == PASSING
