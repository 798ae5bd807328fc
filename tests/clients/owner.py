"""An owner: somebody who signed in to the dashboard and fills in its forms, as a browser does."""

import html
import re
from typing import Any

from storage.tenants.keys import Role
from storage.tenants.projects import list_keys
from storage.tenants.settings import read_settings, stored_settings
from storage.tenants.sign_ins import create_link

OWN = {"Sec-Fetch-Site": "same-origin"}
GENERAL = "/dashboard/settings"
KEYS = "/dashboard/settings/keys"
METRICS = "/dashboard/settings/metrics"
VALUES = "/dashboard/settings/values"
WEBHOOKS = "/dashboard/settings/webhooks"
PATHS = (GENERAL, KEYS, METRICS, VALUES, WEBHOOKS)
SCRIPT = "<script>alert(1)</script>"


class Owner:
    def __init__(self, service: Any, role: Role = Role.OWNER) -> None:
        self.service = service
        self.client = service.client
        self.client.follow_redirects = False
        self.sign_in(
            service.in_store(lambda connection: create_link(connection, service.project_id, role))
        )

    def sign_in(self, secret: str) -> None:
        answer = self.client.post("/dashboard/sign-in", data={"secret": secret}, headers=OWN)
        assert answer.status_code == 303

    def page(self, path: str) -> str:
        answer = self.client.get(path)
        assert answer.status_code == 200
        return answer.text

    def post(self, path: str, form: dict[str, Any], headers: dict[str, str] = OWN) -> Any:
        return self.client.post(path, data=form, headers=headers)

    def form(self, path: str = GENERAL, number: int = 0) -> dict[str, Any]:
        """What a browser would send of a form on a page, as it stands."""
        return filled(self.page(path), number)

    def save(self, **typed: Any) -> Any:
        return self.post(GENERAL, {**self.form(), **typed})

    def stored(self) -> dict[str, Any]:
        return self.service.in_store(
            lambda connection: stored_settings(connection, self.service.project_id)
        )

    def settings(self) -> Any:
        return self.service.in_store(
            lambda connection: read_settings(connection, self.service.project_id)
        )

    def all_keys(self) -> Any:
        return self.service.in_store(
            lambda connection: list_keys(connection, self.service.project_id)
        )


def forms(page: str) -> list[str]:
    main = page.partition("<main")[2]
    return re.findall(r"<form.*?</form>", main, re.DOTALL)


def attributes(tag: str) -> dict[str, str]:
    result = re.findall(r'([\w-]+)="([^"]*)"', tag)
    return {name: html.unescape(value) for name, value in result}


def filled(page: str, number: int = 0) -> dict[str, Any]:
    text = forms(page)[number]
    result: dict[str, Any] = {}
    for tag in re.findall(r"<input[^>]*>", text):
        answer = attributes(tag)
        if answer.get("type") in ("checkbox", "radio"):
            if " checked" in tag:
                result.setdefault(answer["name"], []).append(answer["value"])
        elif "name" in answer:
            result[answer["name"]] = answer.get("value", "")
    for head, inner in re.findall(r"(<textarea[^>]*>)\n?(.*?)</textarea>", text, re.DOTALL):
        result[attributes(head)["name"]] = html.unescape(inner)
    for head, inner in re.findall(r"(<select[^>]*>)(.*?)</select>", text, re.DOTALL):
        (chosen,) = re.findall(r'value="([^"]*)" selected', inner) or [""]
        result[attributes(head)["name"]] = html.unescape(chosen)
    return result


def faults(page: str) -> dict[str, str]:
    """What stands beside each field, by the field's id."""
    result = re.findall(r'<p class="fault" id="([\w-]+)-fault">(.*?)</p>', page)
    answer = {name: html.unescape(text) for name, text in result}
    for name in answer:
        # Whoever does not see the page reads it at the field itself.
        assert (
            f"{name}-fault" in re.findall(rf'id="{name}"[^>]*aria-describedby="([^"]*)"', page)[0]
        )
    return answer


def meanwhile(page: str) -> dict[str, str]:
    result = re.findall(r'id="([\w-]+)-meanwhile">Stored now: <strong>(.*?)</strong>', page)
    return {name: html.unescape(text) for name, text in result}


def alert(page: str) -> str:
    return html.unescape(" ".join(re.findall(r'role="alert">(.*?)</p>', page, re.DOTALL)))
