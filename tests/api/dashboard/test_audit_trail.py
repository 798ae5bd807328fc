"""The audit trail: an entry for each change, none for what failed, and owners alone read it."""

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from storage.releases.freeze import freeze, unfreeze
from storage.tenants.keys import KeyKind, Role
from storage.tenants.setting_changes import apply_settings
from storage.tenants.sign_ins import end_sign_ins
from storage.upkeep.forgetting import forget_person
from storage.views.audit_trail import audit_document, read_trail
from tests.clients.owner import KEYS, METRICS, Owner
from tests.world import World

PAGE = "/dashboard/settings/audit-trail"
ROOT = Path(__file__).parents[3]
FIRST = {"project_created", "key_created", "link_created"}


def trail(owner: Owner) -> list[dict[str, Any]]:
    service = owner.service
    entries = service.in_store(lambda c: read_trail(c, service.project_id, limit=200))
    return json.loads(json.dumps([audit_document(entry) for entry in entries]))


@pytest.fixture
def owner(service) -> Owner:
    """The owner of a store's only project: an entry can be of the whole service."""
    return Owner(service)


@pytest.fixture
def added(owner) -> Callable[[], list[dict[str, Any]]]:
    """The entries since the test began, the oldest first."""
    before = trail(owner)[0]["entry_id"]

    def entries() -> list[dict[str, Any]]:
        return [entry for entry in reversed(trail(owner)) if entry["entry_id"] > before]

    return entries


Added = Callable[[], list[dict[str, Any]]]


def register(service: Any) -> str:
    service.deploy("a" * 8, 0.1)
    return service.register()


class TestAnEntry:
    def test_of_settings_says_what_stood_there_before(self, owner, added) -> None:
        assert owner.save(alpha="0.1", horizon_days="14").status_code == 303
        (entry,) = added()
        assert entry["action"] == "settings_changed"
        assert entry["actor"]["kind"] == "owner"
        assert len(entry["actor"]["identity"]) == 8
        assert entry["changes"] == [
            {"member": "alpha", "before": 0.05, "after": 0.1},
            {"member": "horizon_days", "before": 28, "after": 14},
        ]
        form = {**owner.form(METRICS), "name": "order", "kind": "conversion"}
        assert owner.post(METRICS, form).status_code == 303
        (_, entry) = added()
        assert [change["member"] for change in entry["changes"]] == ["metrics.order"]

    def test_of_a_webhook_tells_its_host_alone(self, owner, added) -> None:
        for path in ("s3cret", "s3cret-too"):
            owner.service.settings(webhooks=[{"url": f"https://hooks.example/T0/{path}"}])
        assert "s3cret" not in str(trail(owner)) + owner.page(PAGE)
        # That the path was changed shows, though neither path does.
        assert [entry["action"] for entry in added()] == ["settings_changed"] * 2
        assert "hooks.example" in owner.page(PAGE)

    def test_of_a_key_names_its_beginning_and_label(self, owner, added) -> None:
        form = {**owner.form(KEYS, len(owner.all_keys())), "kind": "write", "label": "CI"}
        page = owner.post(KEYS, form)
        assert page.status_code == 200
        made = owner.all_keys()[-1]
        assert owner.post(KEYS, {"action": "revoke", "key": made.display}).status_code == 303
        created, revoked = added()
        assert (created["action"], revoked["action"]) == ("key_created", "key_revoked")
        for entry in (created, revoked):
            assert entry["subject"] == made.display
            assert {change["after"] for change in entry["changes"]} == {"write", "CI"}

    def test_of_a_close_names_the_key_that_closed_and_is_made_once(self, service, added) -> None:
        experiment_id = register(service)
        for _ in range(2):
            assert service.post(f"/v1/reward/{experiment_id}/close", {}).status_code == 200
        service.settings(alpha=0.05, rate_limits={})
        (entry,) = added()
        assert (entry["action"], entry["subject"]) == ("experiment_closed", experiment_id)
        display = service.project.keys[KeyKind.PROJECT][:8]
        assert entry["actor"] == {"kind": "key", "name": None, "identity": display}

    def test_of_a_close_by_a_button_names_the_owner(self, service, owner, added) -> None:
        page = f"/dashboard/experiments/{register(service)}"
        assert owner.post(page, {"action": "close"}).status_code == 303
        (entry,) = added()
        assert entry["actor"]["kind"] == "owner"
        assert entry["subject"] in page

    def test_of_a_withdrawal_names_the_deploy(self, service, added) -> None:
        deploy = service.deploy("a" * 8)
        for _ in range(2):
            assert service.withdraw(deploy).status_code == 200
        (entry,) = added()
        assert (entry["action"], entry["subject"]) == ("deploy_withdrawn", deploy["deploy_id"])
        assert entry["actor"]["identity"] == service.project.keys[KeyKind.WRITE][:8]

    def test_of_a_freeze_stands_in_each_project(self, service, added) -> None:
        for _ in range(2):
            service.in_store(lambda connection: freeze(connection, "an incident"))
        for _ in range(2):
            service.in_store(unfreeze)
        frozen, unfrozen = added()
        assert frozen["whole_service"] is unfrozen["whole_service"] is True
        assert frozen["changes"] == [{"member": "reason", "before": None, "after": "an incident"}]
        assert unfrozen["action"] == "unfrozen"
        other = service.new_project("other")
        entries = service.in_store(
            lambda connection: read_trail(connection, other.project_id, limit=50)
        )
        assert {"frozen", "unfrozen"} < {entry.action for entry in entries}

    def test_of_a_person_says_how_much_and_never_who(self, service, owner, added) -> None:
        service.client.post(
            "/v1/events",
            json={"event": "page_view", "session_id": "s-of-a-person"},
            headers=service.public,
        )
        for _ in range(2):
            service.in_store(
                lambda connection: forget_person(connection, service.project_id, "s-of-a-person")
            )
        (entry,) = added()
        assert entry["action"] == "person_forgotten"
        assert {"member": "runtime_events", "before": None, "after": 1} in entry["changes"]
        assert "s-of-a-person" not in str(trail(owner))

    def test_of_access_says_to_whom_it_was_given(self, service, owner) -> None:
        entries = trail(owner)
        assert {entry["action"] for entry in entries} == FIRST
        given = [entry for entry in entries if entry["action"] == "link_created"]
        assert given[0]["changes"] == [{"member": "role", "before": None, "after": "owner"}]
        service.in_store(lambda connection: end_sign_ins(connection, service.project_id))
        last = service.in_store(
            lambda connection: read_trail(connection, service.project_id, limit=1)
        )
        assert last[0].action == "sign_ins_ended"


class TestNoEntry:
    def test_is_made_of_what_was_refused_or_of_another_project(self, service, owner, added) -> None:
        assert owner.save(alpha="2").status_code == 422
        assert owner.save().status_code == 303
        assert owner.post(KEYS, {"action": "revoke", "key": "wk_00000"}).status_code == 409
        assert owner.post(KEYS, {"action": "create", "kind": "nothing"}).status_code == 422
        assert service.post(f"/v1/reward/{'exp_' + '0' * 20}/close", {}).status_code == 404
        with service.store.engine.connect() as connection:
            apply_settings(connection, service.project_id, {"alpha": 0.2})
            connection.rollback()
        World.new(service.store, service.client, "other").settings(alpha=0.2)
        assert added() == []
        assert "other" not in str(trail(owner))

    def test_is_changed_or_taken_out(self, service) -> None:
        for verb in ("UPDATE audit_trail SET actor_name = 'x'", "DELETE FROM audit_trail"):
            with pytest.raises(IntegrityError, match="never changed"):
                service.in_store(lambda c, verb=verb: c.execute(text(verb)))
        with pytest.raises(IntegrityError, match="never changed"):
            service.in_store(lambda c: c.execute(text("TRUNCATE audit_trail")))


class TestReaders:
    def test_are_owners_alone(self, service, owner) -> None:
        owner.client.cookies.clear()
        for headers in ({}, service.reward, service.write):
            assert owner.client.get(PAGE, headers=headers).status_code == 303
        page = Owner(service, Role.READ).client.get(PAGE)
        assert page.status_code == 403
        assert "for owners" in page.text

    def test_turn_pages(self, service, owner) -> None:
        for number in range(60):
            service.settings(horizon_days=1 + number % 2)
        whole = [entry["entry_id"] for entry in trail(owner)]
        assert whole == sorted(whole, reverse=True)
        first = owner.page(PAGE)
        assert f"?before={whole[49]}" in first
        assert "Earlier entries" not in owner.page(f"{PAGE}?before={whole[49]}")

    def test_are_refused_places_that_cannot_be(self, owner) -> None:
        for place in ("x", "-1", "1" * 30, "%00", "١"):
            assert owner.client.get(f"{PAGE}?before={place}").status_code == 404


CHANGES = {
    "apply_settings",
    "create_key",
    "revoke_key",
    "create_project",
    "create_link",
    "end_sign_ins",
    "withdraw_deploy",
    "forget_person",
    "close",
    "put_in_force",
    "end",
}


@pytest.mark.parametrize("room", ["api", "cli"])
def test_each_change_of_the_faces_names_its_actor(room) -> None:
    calls = [
        (path, call)
        for path in (ROOT / room).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in CHANGES
    ]
    assert calls
    for path, call in calls:
        named = {keyword.arg for keyword in call.keywords}
        assert "by" in named, f"{path.relative_to(ROOT)}:{call.lineno}"
