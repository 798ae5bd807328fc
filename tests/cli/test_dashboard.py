"""`dashboard`: the link that signs a browser in."""

import re
from typing import Any

import pytest
from click.testing import CliRunner

from cli.main import main
from storage.sign_ins import Role, sign_in_by_link, visitor


def printed(store: Any, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
    return CliRunner().invoke(main, ["dashboard", *arguments])


def test_the_link_keeps_its_code_behind_the_fragment_and_signs_in(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments, role in ((["-p", "shop"], Role.READ), (["-p", "shop", "--owner"], Role.OWNER)):
        told = printed(service.store, monkeypatch, *arguments, "--url", "https://r.example/")
        assert told.exit_code == 0, told.output
        found = re.fullmatch(r"https://r\.example/dashboard/sign-in#(in_[\w-]{43})\n", told.stdout)
        assert found is not None
        token = service.in_store(lambda c, code=found[1]: sign_in_by_link(c, code))
        who = service.in_store(lambda c, token=token: visitor(c, token))
        assert (who.project_name, who.role) == ("shop", role)


def test_of_a_project_that_is_not_there_no_link_is_made(
    service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = printed(service.store, monkeypatch, "--project", "nowhere")
    assert told.exit_code == 1
    assert "there is no project" in told.output
