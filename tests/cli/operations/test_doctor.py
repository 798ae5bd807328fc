"""`doctor`: the checklist of a project, over HTTP and in the store, and its exit codes."""

import re
from typing import Any

import pytest
from sqlalchemy import text

from storage.tenants.keys import KeyKind
from tests.cli.conftest import serving


def set_up(service: Any) -> None:
    """All that can be right before an experiment is registered."""
    graph = {"schema_version": "1", "routes": [{"path": "/"}]}
    service.post("/v1/deploys", {"commit": {"sha": "a" * 40}, "graph": graph})
    event = {"session_id": "s-1", "commit": "a" * 40, "route": "/"}
    events = [{**event, "event": name} for name in ("page_view", "activation")]
    assert service.post("/v1/events", {"events": events}).status_code == 202


def test_a_project_without_a_red_line_exits_with_0(stored, command) -> None:
    set_up(stored)
    result = command("doctor", "--project", "shop")
    assert result.exit_code == 0, result.output
    flat = " ".join(result.stdout.split())
    assert "✓ commit known 1 of 1 page views with a commit are of a deploy" in flat
    assert (
        "? canary and control both get traffic No experiment is open. → Register the change:"
        in flat
    )
    assert "Nothing is red;" in flat
    # How old that is, since a fix shows at the next look alone.
    assert re.search(r"As of \d+ s ago: the service looks once a minute, and at once with", flat)
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_fix_shows_at_once_where_the_service_is_asked_to_look_anew(
    service, command, monkeypatch
) -> None:
    with serving(service, checklist_seconds=3600) as url:
        monkeypatch.setenv("SERVICE_API_URL", url)
        monkeypatch.setenv("SERVICE_PROJECT_KEY", service.project.keys[KeyKind.PROJECT])
        assert command("doctor").exit_code == 1
        set_up(service)
        assert "No event has come yet" in command("doctor").stdout
        assert command("doctor", "--now").exit_code == 0
        # What was seen is what everybody sees from then on.
        assert command("doctor").exit_code == 0


@pytest.mark.usefixtures("stored")
def test_a_red_line_exits_with_1_and_shows_its_fix(command) -> None:
    result = command("doctor", "--project", "shop")
    assert result.exit_code == 1
    flat = " ".join(result.stdout.split())
    assert "✗ events No event has come yet. → POST /v1/events" in flat
    assert "1 of 11 red: begin with the first." in flat


def test_where_nothing_ticks_it_says_so_and_exits_with_1(stored, command) -> None:
    with stored.store.engine.begin() as connection:
        connection.execute(text("UPDATE projects SET created_at = created_at - interval '1 hour'"))
    result = command("doctor", "--project", "shop")
    assert result.exit_code == 1
    assert "deploy-reward up" in " ".join(result.stdout.split())
