"""`freeze` holds back what anybody would act on, until `unfreeze`; both may be said twice."""

import json
from pathlib import Path

import pytest

from storage.releases.freeze import is_frozen

pytestmark = pytest.mark.usefixtures("stored")


def test_a_freeze_says_since_when_and_why_and_stands_when_it_is_said_again(
    command, stored, tmp_path: Path
) -> None:
    first = command("freeze", "--reason", "a wrong deploy", "--data-dir", tmp_path)
    assert first.output.startswith("Frozen, since 20")
    assert first.output.endswith(" UTC: a wrong deploy\n")
    assert stored.in_store(is_frozen)
    second = command("freeze", "--reason", "another", "--data-dir", tmp_path)
    assert second.output == first.output.replace("Frozen,", "Frozen already,")


def test_an_unfreeze_says_what_it_ended_and_may_be_said_again(
    command, stored, tmp_path: Path
) -> None:
    command("freeze", "--reason", "a wrong deploy", "--data-dir", tmp_path)
    ended = command("unfreeze", "--data-dir", tmp_path)
    assert ended.output.startswith("No longer frozen. It was since 20")
    assert not stored.in_store(is_frozen)
    assert command("unfreeze", "--data-dir", tmp_path).output == "Not frozen.\n"


def test_both_tell_programs_the_same(command, tmp_path: Path) -> None:
    def said(*words: str) -> dict[str, object]:
        return json.loads(command(*words, "--json", "--data-dir", tmp_path).stdout)

    frozen = said("freeze", "--reason", "why")
    assert (frozen["frozen"], frozen["new"], frozen["reason"]) == (True, True, "why")
    again = said("freeze", "--reason", "other")
    assert again == {**frozen, "new": False}
    ended = said("unfreeze")
    assert ended == {"frozen": False, "frozen_at": frozen["frozen_at"], "reason": "why"}
    assert said("unfreeze") == {"frozen": False}


def test_a_service_can_be_frozen_again(command, stored, tmp_path: Path) -> None:
    for reason in ("first", "second"):
        command("freeze", "--reason", reason, "--data-dir", tmp_path)
        assert stored.in_store(is_frozen)
        command("unfreeze", "--data-dir", tmp_path)
    assert not stored.in_store(is_frozen)
