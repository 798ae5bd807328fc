"""The log of a real process: it tells what was asked, and nothing of who asked."""

import httpx2
import pytest

from storage.tenants.keys import KeyKind

pytestmark = pytest.mark.process


def test_the_log_holds_no_key_no_query_and_no_person(shop, api) -> None:
    key = shop.keys[KeyKind.PUBLIC]
    event = {"event": "canary-event", "session_id": 1, "user_ref": "canary-user"}
    assert httpx2.post(f"{api.url}/v1/events?key={key}", json=event).status_code == 422
    api.stopped(api.ask_to_stop())
    log = api.log.read_text()
    assert "POST /v1/events 422" in log
    assert [word for word in (*shop.keys.values(), "canary", "?") if word in log] == []
