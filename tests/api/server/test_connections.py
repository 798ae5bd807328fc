"""What a client may send to the server itself, without a proxy in front: a real process."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from api.app import create_app
from api.runtime.settings import ApiSettings
from storage.tenants.keys import KeyKind
from storage.tenants.projects import create_project
from tests.clients.wire import Wire, get, post
from tests.processes.api_process import ApiProcess, eventually
from tests.processes.served import Served

pytestmark = pytest.mark.process

CONNECTIONS = 60
EVENT = b'{"event": "a", "session_id": "s"}'


@pytest.fixture(scope="module")
def api(safe_postgres, tmp_path_factory) -> Iterator[ApiProcess]:
    log = tmp_path_factory.mktemp("api") / "api.log"
    with (
        pytest.MonkeyPatch.context() as environment,
        ApiProcess(log=log, database_url=safe_postgres.url) as api,
    ):
        environment.setenv("SERVICE_IDLE_SECONDS", "1")
        environment.setenv("SERVICE_MOST_CONNECTIONS", str(CONNECTIONS))
        api.start()
        yield api


@pytest.fixture
def wire(api) -> Iterator[Wire]:
    with Wire(api.port) as wire:
        yield wire


@pytest.fixture(scope="module")
def key(safe_project) -> str:
    return f"X-Service-Project-Key: {safe_project.keys[KeyKind.PUBLIC]}"


def chunked(*fields: str) -> bytes:
    head = ["POST /v1/events HTTP/1.1", "Host: here", "Content-Type: application/json", *fields]
    first, rest = EVENT[:16], EVENT[16:]
    chunks = b"10\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (first, len(rest), rest)
    return "\r\n".join([*head, "Transfer-Encoding: chunked", "", ""]).encode() + chunks


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost here\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nHost: here\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: here\r\n\r\n",
        # RFC 9112, 3.2: two servers on the way could read two different hosts out of it.
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: here\r\nhOST: there\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: here\r\nX: " + b"a" * 2**16,
    ],
)
def test_a_head_that_is_none_of_http_is_refused_and_the_connection_closed(wire, sent) -> None:
    assert wire.send(sent).answer().status == 400


OFFERS = {
    # As Java's HttpClient and `curl --http2` write it.
    "h2c": (
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    ),
    "websocket": (
        "Connection: keep-alive, Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ),
}
BODIES = {"sized": partial(post, "/v1/events", EVENT), "chunked": chunked}
each_offer = pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)


@each_offer
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_request_that_offers_another_protocol_keeps_its_body(wire, key, offer, body) -> None:
    assert wire.send(body(key, *offer)).answer().document["accepted"] == 1
    # In as many packets as there are bytes, and on the connection that stays open.
    sent = body(key, *offer)
    for place in range(len(sent)):
        wire.send(sent[place : place + 1])
    assert wire.answer().document["accepted"] == 1
    assert wire.send(get("/healthz")).answer().status == 200


@each_offer
def test_requests_sent_at_once_are_answered_in_turn(wire, key, offer) -> None:
    wire.send(
        *(chunked(key, *offer), get("/nowhere", *offer), chunked(key), chunked(key, *offer)),
        *(post("/v1/events", EVENT, *offer), get("/healthz")),
    )
    assert [wire.answer().status for _ in range(6)] == [202, 404, 202, 202, 401, 200]


@each_offer
def test_a_client_that_offers_another_protocol_may_wait_to_be_asked_for_its_body(
    wire, key, offer
) -> None:
    wire.send(post("/v1/events", b"", key, "Expect: 100-continue", *offer, length=len(EVENT)))
    assert wire.answer().status == 100
    assert wire.send(EVENT).answer().status == 202


def test_a_client_that_is_refused_in_the_middle_of_a_body_still_reads_why(wire) -> None:
    # More than the kernel keeps for us: a server that closed now would reset the connection.
    body = b" " * 2**24
    wire.send(post("/v1/events", body))
    assert wire.answer().is_problem(401, "missing_key")
    assert wire.send(get("/healthz")).answer().status == 200


def test_a_client_that_is_refused_before_its_body_is_not_left_with_half_a_request(wire) -> None:
    wire.send(post("/v1/events", b"", "Expect: 100-continue", length=100))
    assert wire.answer().is_problem(401, "missing_key")
    assert wire.ended()


def test_a_body_that_stalls_or_drips_is_answered_408(store, monkeypatch) -> None:
    monkeypatch.setattr("api.wire.body.BODY_SECONDS", 0.3)
    with store.engine.begin() as connection:
        project = create_project(connection, "shop")
    settings = ApiSettings(database_url=store.url, secret=b"a secret of the tests, long enough")
    key = f"X-Service-Project-Key: {project.keys[KeyKind.PUBLIC]}"
    begun = post("/v1/events", b" ", key, length=2**19)
    with (
        Served(app=create_app(settings), http="h11") as served,
        Wire(served.port) as stalled,
        Wire(served.port) as dripping,
    ):
        stalled.send(begun)
        dripping.send(begun)
        eventually(lambda: dripping.hears(seconds=0) or not dripping.send(" "))
        for wire in (stalled, dripping):
            answer = wire.answer()
            assert answer.is_problem(408, "request_timeout")
            assert answer.headers["connection"] == "close"


def test_half_open_connections_keep_nobody_else_waiting(api, key) -> None:
    starts = ["", "P", "POST /v1/events HTTP/1.1\r\nHost: he"]
    with ExitStack() as stack:
        for number in range(CONNECTIONS - 2):
            stack.enter_context(Wire(api.port)).send(starts[number % 3])
        with Wire(api.port) as healthy:
            assert healthy.send(post("/v1/events", EVENT, key)).answer().status == 202


def test_connections_over_the_limit_are_refused(api) -> None:
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(api.port)) for _ in range(CONNECTIONS + 5)]
        statuses = {wire.send(get("/healthz")).answer().status for wire in wires}
        assert statuses <= {200, 503}
        assert 503 in statuses


def test_no_wish_of_a_client_is_a_fault_in_the_log(api) -> None:
    assert [word for word in ("Traceback", "ERROR") if word in Path(api.log).read_text()] == []
