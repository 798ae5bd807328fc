"""A read key reads what the project key reads, and changes nothing."""

import re
from base64 import b64decode
from typing import Any

from storage.tenants.keys import KeyKind
from storage.tenants.projects import revoke_key
from tests.api.routes.test_tenants import asked, by, code_of, every_operation
from tests.clients.owner import OWN

# The moment that an answer is of.
_OF_THE_REQUEST = re.compile(r"20\d\d-[\d:.T-]+Z")
REGISTER = "/v1/reward/register"


@every_operation
def test_it_is_answered_as_the_project_key_is_and_refused_what_changes_or_sends(
    tenant, path, method, operation
) -> None:
    tenant.deploy("aaaaaaa", 0.1)
    experiment_id = tenant.post(REGISTER, {}).json()["experiment_id"]
    read_key, project_key = tenant.new_key(KeyKind.READ), tenant.project.keys[KeyKind.PROJECT]
    by_reader, by_project = (
        asked(tenant, path, method, operation, experiment_id=experiment_id, **by(key))
        for key in (read_key, project_key)
    )
    if method.lower() == "get" and path.startswith(("/v1/reward", "/v1/places")):
        assert by_reader.status_code == by_project.status_code
        assert content(by_reader) == content(by_project)
    else:
        assert (by_reader.status_code, code_of(by_reader)) == (403, "wrong_key_kind")


def content(answer: Any) -> str:
    """Returns an answer without the moment and the id of its request."""
    text = answer.text.replace(answer.headers["X-Request-Id"], "")
    if answer.is_success and "payload" in (document := answer.json()):
        # The signature of a statement, which names its moment, is of that moment too.
        text = b64decode(document["payload"]).decode()
    return _OF_THE_REQUEST.sub("", text)


def test_it_signs_in_to_read_until_it_is_revoked(tenant) -> None:
    key = tenant.new_key(KeyKind.READ)
    assert key.startswith("ro_")
    tenant.client.follow_redirects = False
    answer = tenant.client.post("/dashboard/sign-in", data={"secret": key}, headers=OWN)
    assert answer.status_code == 303
    page = tenant.client.get("/dashboard/settings/keys")
    assert page.status_code == 200
    refused = tenant.client.post("/dashboard/settings/keys", data={"kind": "read"}, headers=OWN)
    assert refused.status_code == 403
    tenant.in_store(lambda connection: revoke_key(connection, tenant.project_id, key[:8]))
    assert tenant.client.get("/dashboard/settings/keys").status_code == 303


def test_a_new_project_has_none(tenant) -> None:
    assert KeyKind.READ not in tenant.project.keys
