"""What docs say of settings, keys and operations is what the service has."""

import re

import pytest

from storage.tenants.keys import KeyKind
from tests.reference import COMMAND, SETTINGS_PAGE, key_kinds, openapi, settings_page


def test_the_table_of_settings_is_up_to_date_to_the_byte() -> None:
    assert SETTINGS_PAGE.read_text() == settings_page(), f"run {COMMAND}"


@pytest.mark.parametrize("kind", KeyKind)
def test_the_kinds_of_keys_that_are_named_are_those_that_are_taken(service, kind) -> None:
    key = {"X-Service-Project-Key": service.new_key(kind)}
    for endpoint, kinds in key_kinds().items():
        method, path = endpoint.split()
        answer = service.client.request(method, path.replace("{experiment_id}", "e"), headers=key)
        refused = answer.status_code == 403 and "wrong_key_kind" in answer.text
        # What takes no key refuses none for its kind.
        taken = {kind.value for kind in KeyKind} & set(kinds.split(", "))
        assert refused == (bool(taken) and kind.value not in taken), endpoint
        assert taken or kinds in ("none", "an owner's sign-in"), endpoint


def test_each_operation_is_named_by_words_that_a_generated_client_can_use() -> None:
    names = [
        operation["operationId"]
        for operations in openapi()["paths"].values()
        for operation in operations.values()
    ]
    assert len({*names}) == len(names)
    assert [name for name in names if not re.fullmatch("[a-z]+(_[a-z]+){1,3}", name)] == []
    assert {"get_verdict", "post_registration", "post_deploy"} <= {*names}
