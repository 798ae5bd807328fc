"""`freeze` holds back what anybody would act on, until `unfreeze`; both may be said twice."""

import json
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("stored")


def frozen(service: Any) -> bool:
    return service.get("/v1/reward/freeze").json()["frozen"]


def test_a_freeze_says_since_when_and_why_until_an_unfreeze_and_both_may_be_said_again(
    command, stored, tmp_path
) -> None:
    first = command("freeze", "--reason", "a wrong deploy", "--data-dir", tmp_path)
    assert first.output.startswith("Frozen, since 20")
    assert first.output.endswith(" UTC: a wrong deploy\n")
    assert frozen(stored)
    second = command("freeze", "--reason", "another", "--data-dir", tmp_path)
    assert second.output == first.output.replace("Frozen,", "Frozen already,")
    ended = command("unfreeze", "--data-dir", tmp_path)
    assert ended.output.startswith("No longer frozen. It was since 20")
    assert not frozen(stored)
    assert command("unfreeze", "--data-dir", tmp_path).output == "Not frozen.\n"


def test_both_tell_programs_the_same(command, tmp_path) -> None:
    def said(*words: str) -> dict[str, object]:
        return json.loads(command(*words, "--json", "--data-dir", tmp_path).stdout)

    first = said("freeze", "--reason", "why")
    assert (first["frozen"], first["new"], first["reason"]) == (True, True, "why")
    again = said("freeze", "--reason", "other")
    assert again == {**first, "new": False}
    ended = said("unfreeze")
    assert ended == {"frozen": False, "frozen_at": first["frozen_at"], "reason": "why"}
    assert said("unfreeze") == {"frozen": False}
