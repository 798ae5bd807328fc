"""Forms of the dashboard that are sent again by somebody who got no answer, or sent nowhere."""

import re
from typing import Any

import pytest

from storage.settings import stored_settings
from storage.sign_ins import Role, create_link

OWN = {"Sec-Fetch-Site": "same-origin"}
PATH = "/dashboard/settings/{}"
TYPED = {
    "metrics": ("metrics", {"name": "order", "kind": "mean"}),
    "values": ("value_routes", {"metric": "order", "value_per_conversion": "40"}),
    "webhooks": (
        "webhooks",
        {"format": "raw", "url": "https://hooks.example/verdicts", "events": "decided"},
    ),
}


def hidden(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found
    return found[1]


@pytest.mark.parametrize("name", TYPED)
def test_an_entry_that_is_sent_again_is_there_once(service: Any, name: str) -> None:
    code = service.in_store(
        lambda connection: create_link(connection, service.project_id, Role.OWNER)
    )
    service.client.follow_redirects = False
    service.client.post("/dashboard/sign-in", data={"secret": code}, headers=OWN)
    member, typed = TYPED[name]

    def sent(form: dict[str, str]) -> list[Any]:
        answer = service.client.post(PATH.format(name), data=form, headers=OWN)
        assert answer.status_code == 303, answer.text
        return list(service.in_store(lambda one: stored_settings(one, service.project_id))[member])

    new = {"action": "save", **typed}
    assert sent(new) == sent(new)
    assert len(sent(new)) == 1

    page = service.client.get(PATH.format(name)).text
    shown = {one: hidden(page, one) for one in ("key", "seen")}
    what = {"metrics": "name", "values": "metric", "webhooks": "url"}[name]
    edited = {**new, **shown, what: f"{typed[what]}2"}
    assert sent(edited) == sent(edited)
    assert len(sent(edited)) == 1
    # What is another entry is added still.
    assert len(sent(new)) == 2


def test_a_form_that_no_page_takes_is_answered_by_a_page(service: Any) -> None:
    for path in ("/dashboard/nowhere", "/dashboard/deploys", "/dashboard"):
        browser = {**OWN, "Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
        answer = service.client.post(path, data={"a": "b"}, headers=browser)
        assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert "Nothing was done." in answer.text
        told = service.client.post(path, json={}, headers={"Accept": "application/json"})
        assert (told.status_code, told.json()["code"]) == (405, "method_not_allowed")
    assert service.client.post("/v1/nowhere", headers=browser).json()["code"] == "not_found"
