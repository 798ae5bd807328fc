"""The application inside a command: whoever has the store needs no key; the network always does."""

import getpass
import json
from typing import Any

import httpx2
import pytest

from api.app import create_app
from api.runtime.keyring import OPERATOR
from api.runtime.settings import ApiSettings
from tests.processes.served import Served

# Each place in which a request can name something.
CLAIM = {OPERATOR: "1", "operator": "1", "Deploy-Reward-Operator": "1"}


@pytest.mark.parametrize("parser", ["h11", "httptools"])
def test_no_request_of_the_network_is_an_operator_s(store, parser) -> None:
    app = create_app(
        ApiSettings(database_url=store.url, secret=b"a secret of the tests, long enough")
    )
    scopes: list[Any] = []

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        await app(scope, receive, send)

    with (
        Served(app=watched, http=parser) as served,
        httpx2.Client(base_url=served.url, headers=CLAIM, params=CLAIM, cookies=CLAIM) as client,
    ):
        for path in ("/v1/reward/checklist", "/v1/deploys", "/v1/reward"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (401, "missing_key")
    assert {scope["type"] for scope in scopes} == {"lifespan", "http"}
    assert all(OPERATOR not in {*scope, *scope.get("state", ())} for scope in scopes)


def test_what_a_command_changes_without_a_key_has_its_login_in_the_trail(
    service, command, monkeypatch
) -> None:
    monkeypatch.setenv("SERVICE_DATABASE_URL", service.store.url)
    for sha in ("a" * 7, "b" * 7):
        command("deploy", sha, "-p", "shop")
    experiment = command("register", "-p", "shop", "--commit", "b" * 7).stdout.strip()
    assert command("close", experiment).exit_code == 0
    mistake = command("deploy", "d" * 7, "--environment", "staging", "-p", "shop").stdout.strip()
    assert command("withdraw", mistake, "-p", "shop").exit_code == 0
    entries = json.loads(command("audit-trail", "-p", "shop", "--json").stdout)
    ours = [entry for entry in entries if entry["actor"]["name"] == getpass.getuser()]
    assert {entry["action"] for entry in ours} >= {"experiment_closed", "deploy_withdrawn"}
    assert all(entry["actor"]["kind"] == "command" for entry in ours)
