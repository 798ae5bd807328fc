"""The command `audit-trail`: what commands changed, and under which login."""

import getpass
import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result


@pytest.fixture
def run(store, command, monkeypatch) -> Callable[..., Result]:
    monkeypatch.setenv("SERVICE_DATABASE_URL", store.url)
    return command


def trail(run: Callable[..., Result], *options: str) -> list[dict[str, Any]]:
    return json.loads(run("audit-trail", "--project", "shop", "--json", *options).stdout)


def test_each_command_that_changes_leaves_an_entry_with_its_login(run, tmp_path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("alpha = 0.1\n")
    run("project", "create", "shop")
    before = len(trail(run))
    key = run("keys", "create", "read", "--label", "screen", "-p", "shop").stdout.strip()
    run("keys", "revoke", key, "-p", "shop")
    run("settings", "apply", str(file), "-p", "shop")
    run("settings", "apply", str(file), "-p", "shop")
    run("dashboard", "--owner", "-p", "shop")
    run("dashboard", "--sign-out-all", "-p", "shop")
    run("freeze", "--reason", "a release")
    run("unfreeze")
    entries = trail(run)
    assert [entry["action"] for entry in reversed(entries[:-before])] == [
        "key_created",
        "key_revoked",
        "settings_changed",
        "link_created",
        "sign_ins_ended",
        "frozen",
        "unfrozen",
    ]
    login = {"kind": "command", "name": getpass.getuser(), "identity": None}
    assert all(entry["actor"] == login for entry in entries)
    assert key not in json.dumps(entries)
    newest, second = (entry["entry_id"] for entry in entries[:2])
    assert [e["entry_id"] for e in trail(run, "--limit", "1")] == [newest]
    assert [e["entry_id"] for e in trail(run, "--limit", "1", "--before", str(newest))] == [second]


def test_the_table_shows_labels_and_values(run) -> None:
    run("project", "create", "shop")
    run("keys", "create", "read", "--label", "a [screen]", "-p", "shop")
    shown = run("audit-trail", "-p", "shop").stdout
    assert "key_created" in shown
    assert "[screen]" in shown
    run("project", "create", "other")
    assert "screen" not in run("audit-trail", "-p", "other").stdout
