"""Forms of the dashboard that are sent again by somebody who got no answer, or sent nowhere."""

import re
from typing import Any

from storage.tenants.settings import stored_settings
from storage.tenants.sign_ins import Role, create_link

OWN = {"Sec-Fetch-Site": "same-origin"}
PATH = "/dashboard/settings/{}"
# Of each page the setting, a field that makes an entry another, and what is typed.
TYPED = {
    "metrics": ("metrics", "name", {"name": "order", "kind": "mean"}),
    "values": ("value_routes", "metric", {"metric": "order", "value_per_conversion": "40"}),
    "webhooks": (
        "webhooks",
        "url",
        {"format": "raw", "url": "https://hooks.example/verdicts", "events": "decided"},
    ),
}


def hidden(page: str, name: str) -> str:
    result = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert result
    return result[1]


def test_an_entry_that_is_sent_again_is_there_once(service: Any) -> None:
    code = service.in_store(
        lambda connection: create_link(connection, service.project_id, Role.OWNER)
    )
    service.client.follow_redirects = False
    service.client.post("/dashboard/sign-in", data={"secret": code}, headers=OWN)

    def sent(name: str, form: dict[str, str]) -> list[Any]:
        answer = service.client.post(PATH.format(name), data=form, headers=OWN)
        assert answer.status_code == 303, answer.text
        stored = service.in_store(lambda each: stored_settings(each, service.project_id))
        return list(stored[TYPED[name][0]])

    for name, (_, what, typed) in TYPED.items():
        new = {"action": "save", **typed}
        assert sent(name, new) == sent(name, new)
        assert len(sent(name, new)) == 1

        page = service.client.get(PATH.format(name)).text
        shown = {each: hidden(page, each) for each in ("key", "seen")}
        edited = {**new, **shown, what: f"{typed[what]}2"}
        assert sent(name, edited) == sent(name, edited)
        assert len(sent(name, edited)) == 1
        # What is another entry is added still.
        assert len(sent(name, new)) == 2


def test_a_form_that_no_page_takes_is_answered_by_a_page(service: Any) -> None:
    for path in ("/dashboard/nowhere", "/dashboard/deploys", "/dashboard"):
        browser = {**OWN, "Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
        answer = service.client.post(path, data={"a": "b"}, headers=browser)
        assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert "Nothing was done." in answer.text
        result = service.client.post(path, json={}, headers={"Accept": "application/json"})
        assert (result.status_code, result.json()["code"]) == (405, "method_not_allowed")
    assert service.client.post("/v1/nowhere", headers=browser).json()["code"] == "not_found"
