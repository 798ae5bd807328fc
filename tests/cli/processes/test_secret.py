"""The service's secret: a store takes no other, and whoever reads it says so in a line."""

import json
import re
from pathlib import Path

import pytest

from tests.orchestration.shop import OF_THE_TESTS

SECRET = OF_THE_TESTS
ANOTHER = "another secret, which is long enough"
USER = "someone@example.org"


@pytest.fixture
def folder(stored, command, monkeypatch, tmp_path) -> Path:
    """A data directory with the secret of a store that knows somebody."""
    monkeypatch.delenv("SERVICE_SECRET", raising=False)
    monkeypatch.setenv("SERVICE_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "secret").write_text(SECRET)
    event = {"event": "login", "session_id": "s-1"}
    assert stored.post("/v1/events", {**event, "user_ref": USER}).status_code == 202
    past = {**event, "session_id": "s-0", "occurred_at": "2026-01-01T00:00:00Z"}
    (tmp_path / "past.ndjson").write_text(json.dumps(past))
    assert command("import", tmp_path / "past.ndjson", "-p", "shop").exit_code == 0
    return tmp_path / "data"


READERS = {
    "api": ("api", "--port", "0"),
    "dagster": ("dagster", "--port", "0"),
    "import": ("import", "past.ndjson", "-p", "shop"),
    "forget": ("forget", "--user-ref", USER, "-p", "shop"),
    "keys webhook": ("keys", "webhook", "-p", "shop"),
    "keys assignment": ("keys", "assignment", "-p", "shop"),
}
FAULTS = {
    "lost": (None, "holds no secret, but the store was made with one"),
    "empty": ("", "holds 0 bytes"),
    "short": ("short", "holds 5 bytes"),
    "of another store": (ANOTHER, "this is not the secret that the store was made with"),
}


@pytest.mark.parametrize("by_variable", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_secret_that_is_not_the_store_s_is_refused_by_whoever_reads_it(
    folder, command, monkeypatch, fault, by_variable
) -> None:
    secret, reason = FAULTS[fault]
    (folder / "secret").unlink()
    if secret is not None and by_variable:
        monkeypatch.setenv("SERVICE_SECRET", secret)
    elif secret is not None:
        (folder / "secret").write_text(secret)
    monkeypatch.chdir(folder.parent)
    for reader, words in READERS.items():
        # Dagster needs none: without it webhooks wait.
        if (reader, fault) == ("dagster", "lost"):
            continue
        result = command(*words)
        assert result.exit_code == 1, reader
        assert reason in result.output, reader
        assert result.output.strip().splitlines()[-1].startswith("Error: "), reader
        assert (folder / "secret").exists() == (secret is not None and not by_variable)

    monkeypatch.setenv("SERVICE_SECRET", SECRET)
    erased = command("forget", "--user-ref", USER, "-p", "shop")
    assert erased.stdout.startswith("Erased 1 runtime events")


def test_a_line_feed_at_its_end_makes_it_no_other(folder, command) -> None:
    before = command("keys", "webhook", "-p", "shop").stdout
    (folder / "secret").write_text(f"{SECRET}\n")
    assert command("keys", "webhook", "-p", "shop").stdout == before
    assert "Erased 1" in command("forget", "--user-ref", USER, "-p", "shop").stdout


def test_its_loss_is_accepted_by_a_word_that_names_the_new_secret(
    folder, command, monkeypatch
) -> None:
    (folder / "secret").write_text(ANOTHER)
    word = re.search(r"SERVICE_ACCEPT=(\w+)", command("keys", "webhook", "-p", "shop").output)
    assert word is not None
    monkeypatch.setenv("SERVICE_ACCEPT", "0" * 12)
    assert command("keys", "webhook", "-p", "shop").exit_code == 1
    monkeypatch.setenv("SERVICE_ACCEPT", word[1])
    assert command("keys", "webhook", "-p", "shop").exit_code == 0
    (folder / "secret").write_text(SECRET)
    assert command("keys", "webhook", "-p", "shop").exit_code == 1
