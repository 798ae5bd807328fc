"""`keys assignment` shows what a router signs with, and never one that the API doesn't know."""

import json
from pathlib import Path

import pytest

from storage.tenants.secret import Assignments

pytestmark = pytest.mark.usefixtures("stored")

OF_THE_TESTS = "a secret of the tests"


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SERVICE_SECRET", OF_THE_TESTS)
    return tmp_path / "data"


def test_the_key_is_the_one_that_the_api_derives(command, stored, data_dir: Path) -> None:
    shown = command("keys", "assignment", "-p", "shop", "--data-dir", data_dir)
    assert shown.exit_code == 0
    assert shown.stdout.strip() == Assignments(OF_THE_TESTS.encode()).key(stored.project_id, 1)


def test_the_first_epoch_is_the_router_s(command, stored, data_dir: Path) -> None:
    stored.settings(assignment_epochs=[2, 1])
    shown = command("keys", "assignment", "-p", "shop", "--json", "--data-dir", data_dir)
    key = Assignments(OF_THE_TESTS.encode()).key(stored.project_id, 2)
    assert json.loads(shown.stdout) == {"epoch": 2, "key": key}


def test_an_epoch_that_is_not_in_force_is_shown_with_a_warning(
    command, stored, data_dir: Path
) -> None:
    shown = command("keys", "assignment", "-p", "shop", "--epoch", 3, "--data-dir", data_dir)
    assert shown.stdout.strip() == Assignments(OF_THE_TESTS.encode()).key(stored.project_id, 3)
    assert "assignment_epochs does not name 3" in shown.stderr


def test_the_key_is_of_the_project(command, stored, data_dir: Path) -> None:
    stored.new_project("other")
    first, second = (
        command("keys", "assignment", "-p", name, "--data-dir", data_dir).stdout
        for name in ("shop", "other")
    )
    assert first != second


def test_no_key_is_shown_from_a_secret_that_no_api_has(
    command, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SERVICE_SECRET")
    refused = command("keys", "assignment", "-p", "shop", "--data-dir", data_dir)
    assert refused.exit_code == 1
    assert "SERVICE_SECRET" in refused.stderr
    assert not data_dir.exists()
