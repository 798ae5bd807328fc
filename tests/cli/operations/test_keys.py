"""`keys` shows what a router signs with and what receivers verify with, and no other secret."""

import base64
import json
from pathlib import Path

import pytest

from storage.tenants.secret import Assignments, WebhookSecrets

pytestmark = pytest.mark.usefixtures("stored")

OF_THE_TESTS = "a secret of the tests"


@pytest.fixture
def data_dir(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SERVICE_SECRET", OF_THE_TESTS)
    return tmp_path / "data"


def test_the_key_of_assignments_is_that_of_the_api(command, stored, data_dir) -> None:
    shown = command("keys", "assignment", "-p", "shop", "--data-dir", data_dir)
    assert shown.exit_code == 0
    assert shown.stdout.strip() == Assignments(OF_THE_TESTS.encode()).key(stored.project_id, 1)


def test_the_first_epoch_is_the_router_s(command, stored, data_dir) -> None:
    stored.settings(assignment_epochs=[2, 1])
    shown = command("keys", "assignment", "-p", "shop", "--json", "--data-dir", data_dir)
    key = Assignments(OF_THE_TESTS.encode()).key(stored.project_id, 2)
    assert json.loads(shown.stdout) == {"epoch": 2, "key": key}


def test_an_epoch_that_is_not_in_force_is_shown_with_a_warning(command, stored, data_dir) -> None:
    shown = command("keys", "assignment", "-p", "shop", "--epoch", 3, "--data-dir", data_dir)
    assert shown.stdout.strip() == Assignments(OF_THE_TESTS.encode()).key(stored.project_id, 3)
    assert "assignment_epochs does not name 3" in shown.stderr


@pytest.mark.parametrize("use", ["assignment", "webhook"])
def test_no_key_is_shown_from_a_secret_that_no_api_has(command, data_dir, monkeypatch, use) -> None:
    monkeypatch.delenv("SERVICE_SECRET")
    refused = command("keys", use, "-p", "shop", "--data-dir", data_dir)
    assert refused.exit_code == 1
    assert "SERVICE_SECRET" in refused.stderr
    assert not data_dir.exists()


def test_the_key_of_webhooks_is_the_project_s_in_the_form_of_the_standard(
    command, stored, data_dir
) -> None:
    stored.new_project("other")
    shown, others = (
        command("keys", "webhook", "-p", name, "--data-dir", data_dir).stdout.strip()
        for name in ("shop", "other")
    )
    assert shown == WebhookSecrets(OF_THE_TESTS.encode()).of(stored.project_id)
    assert shown.startswith("whsec_")
    assert 24 <= len(base64.b64decode(shown.removeprefix("whsec_"), validate=True)) <= 64
    assert shown != others
    as_json = command("keys", "webhook", "-p", "shop", "--json", "--data-dir", data_dir).stdout
    assert json.loads(as_json) == {"key": shown}


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_settings_show_the_host_of_a_webhook_alone(command, data_dir, tmp_path, form) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[[webhooks]]\nurl = "https://hooks.slack.com/services/T0canary"\n')
    words = ["-p", "shop", "--data-dir", data_dir, *form]
    applied = command("settings", "apply", file, *words)
    shown = command("settings", "show", *words)
    assert applied.exit_code == shown.exit_code == 0
    assert applied.stdout == shown.stdout
    assert "hooks.slack.com" in shown.stdout
    assert "T0canary" not in shown.output


def test_a_masked_address_is_not_applied(command, data_dir, tmp_path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[[webhooks]]\nurl = "https://hooks.slack.com/…"\n')
    refused = command("settings", "apply", file, "-p", "shop", "--data-dir", data_dir)
    assert refused.exit_code == 1
    assert "masked" in refused.stderr
