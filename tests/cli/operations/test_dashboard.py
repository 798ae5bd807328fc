"""`dashboard`: the link that signs a browser in, and the end of every sign-in."""

import re
from typing import Any

import pytest
from click.testing import CliRunner

from cli.main import main
from storage.tenants.keys import KeyKind, Role
from storage.tenants.sign_ins import create_link, sign_in_by_key, sign_in_by_link, visitor


def printed(store: Any, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
    return CliRunner().invoke(main, ["dashboard", *arguments])


def test_the_link_keeps_its_code_behind_the_fragment_and_signs_in(service, monkeypatch) -> None:
    for arguments, role in ((["-p", "shop"], Role.READ), (["-p", "shop", "--owner"], Role.OWNER)):
        answer = printed(service.store, monkeypatch, *arguments, "--url", "https://r.example/")
        assert answer.exit_code == 0, answer.output
        link = re.fullmatch(r"https://r\.example/dashboard/sign-in#(in_[\w-]{43})\n", answer.stdout)
        assert link is not None
        token = service.in_store(lambda c, code=link[1]: sign_in_by_link(c, code))
        who = service.in_store(lambda c, token=token: visitor(c, token))
        assert (who.project_name, who.role) == ("shop", role)


def test_of_a_project_that_is_not_there_no_link_is_made(service, monkeypatch) -> None:
    output = printed(service.store, monkeypatch, "--project", "nowhere")
    assert output.exit_code == 1
    assert "there is no project" in output.output
    assert "deploy-reward project list" in output.output


def test_all_sign_ins_to_a_project_end_at_once_and_no_others(service, monkeypatch) -> None:
    other = service.new_project("other")

    def link_to(project_id: int) -> str:
        return service.in_store(lambda c: create_link(c, project_id, Role.OWNER))

    def token_of(project_id: int) -> str:
        code = link_to(project_id)
        return service.in_store(lambda c: sign_in_by_link(c, code))

    def is_in(token: str) -> bool:
        return service.in_store(lambda c: visitor(c, token)) is not None

    key = service.project.keys[KeyKind.PROJECT]
    ours = [token_of(service.project_id), service.in_store(lambda c: sign_in_by_key(c, key))]
    theirs, waiting, their_link = (
        token_of(other.project_id),
        link_to(service.project_id),
        link_to(other.project_id),
    )
    output = printed(service.store, monkeypatch, "-p", "shop", "--sign-out-all")
    assert output.exit_code == 0, output.output
    assert output.stdout.startswith("Sign-ins that were ended: 2.")
    assert [is_in(token) for token in (*ours, theirs)] == [False, False, True]
    assert service.in_store(lambda c: sign_in_by_link(c, waiting)) is None
    assert service.in_store(lambda c: sign_in_by_link(c, their_link)) is not None
    # Keys are not sign-ins.
    assert service.in_store(lambda c: sign_in_by_key(c, key)) is not None


def test_the_end_of_all_sign_ins_makes_no_link(service, monkeypatch) -> None:
    output = printed(service.store, monkeypatch, "-p", "shop", "--sign-out-all", "--owner")
    assert output.exit_code == 2
    assert "leave --owner out" in output.output
