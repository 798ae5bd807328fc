"""`keys` shows what a router signs with and what receivers verify with, and no other secret."""

import base64
import json
from pathlib import Path

import pytest

from storage.tenants.attestations import WebhookSecrets
from storage.tenants.secret import Assignments

pytestmark = pytest.mark.usefixtures("stored")

OF_THE_TESTS = "a secret of the tests, long enough"


@pytest.fixture
def data_dir(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SERVICE_SECRET", OF_THE_TESTS)
    return tmp_path / "data"


def test_the_key_of_assignments_is_that_of_the_api(command, stored, data_dir) -> None:
    words = ("keys", "assignment", "-p", "shop", "--data-dir", data_dir)
    first, second, third = (
        Assignments(OF_THE_TESTS.encode()).key(stored.project_id, epoch) for epoch in (1, 2, 3)
    )
    shown = command(*words)
    assert (shown.exit_code, shown.stdout.strip()) == (0, first)
    stored.settings(assignment_epochs=[2, 1])
    assert json.loads(command(*words, "--json").stdout) == {"epoch": 2, "key": second}
    shown = command(*words, "--epoch", 3)
    assert shown.stdout.strip() == third
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


def test_settings_show_the_host_of_a_webhook_alone_and_take_no_masked_address(
    command, data_dir, tmp_path
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('[[webhooks]]\nurl = "https://hooks.slack.com/services/T0canary"\n')
    for form in ([], ["--json"]):
        words = ["-p", "shop", "--data-dir", data_dir, *form]
        applied = command("settings", "apply", file, *words)
        shown = command("settings", "show", *words)
        assert applied.exit_code == shown.exit_code == 0
        assert applied.stdout == shown.stdout
        assert "hooks.slack.com" in shown.stdout
        assert "T0canary" not in shown.output
    file.write_text('[[webhooks]]\nurl = "https://hooks.slack.com/…"\n')
    refused = command("settings", "apply", file, "-p", "shop", "--data-dir", data_dir)
    assert refused.exit_code == 1
    assert "masked" in refused.stderr
