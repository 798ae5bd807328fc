"""What a client may hold of the server, against a real process with short limits."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from storage.postgres.embedded import EmbeddedPostgres
from storage.tenants.keys import KeyKind
from storage.tenants.projects import CreatedProject
from tests.clients.wire import PATIENCE_SECONDS, Wire, get, post
from tests.processes.api_process import ApiProcess, eventually

pytestmark = pytest.mark.process

LIMITS = {
    "SERVICE_HEAD_SECONDS": "1",
    "SERVICE_BODY_SECONDS": "1",
    "SERVICE_IDLE_SECONDS": "1",
    "SERVICE_MOST_CONNECTIONS": "60",
    "SERVICE_MOST_REQUESTS": "8",
}
HEAD_BYTES = 32 * 1024
TARGET_BYTES = 8 * 1024


@pytest.fixture(scope="module")
def api(
    safe_postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiProcess]:
    log = tmp_path_factory.mktemp("api") / "api.log"
    with (
        pytest.MonkeyPatch.context() as environment,
        ApiProcess(log=log, database_url=safe_postgres.url) as api,
    ):
        for name, value in LIMITS.items():
            environment.setenv(name, value)
        api.start()
        yield api


@pytest.fixture
def wire(api: ApiProcess) -> Iterator[Wire]:
    with Wire(api.port) as wire:
        yield wire


@pytest.fixture(scope="module")
def key(safe_project: CreatedProject) -> str:
    return f"X-Service-Project-Key: {safe_project.keys[KeyKind.PUBLIC]}"


EVENT = b'{"event": "a", "session_id": "s"}'


def test_a_client_that_says_nothing_is_left_without_a_word(wire: Wire) -> None:
    assert wire.ended()


def test_a_request_that_stops_coming_is_answered_408(api: ApiProcess, key: str) -> None:
    starts = [
        b"G",
        b"GET /healthz HTTP/1.1\r\nHost: he",
        post("/v1/events", b"", key, length=len(EVENT)),
        # So much that its rate would do for another half a minute.
        post("/v1/events", b" " * (3 * 2**17), key, length=2**19),
        get("/healthz").encode() + b"GET /he",
    ]
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(api.port)).send(start) for start in starts]
        assert wires[-1].answer().status == 200
        for wire in wires:
            assert wire.answer().is_problem(408, "request_timeout")
            assert wire.ended()


def test_a_request_that_drips_is_answered_408(api: ApiProcess, key: str) -> None:
    starts = [
        (b"GET /healthz HTTP/1.1\r\nX-Long: ", b"x"),
        (post("/v1/events", b"", key, length=2**19), b" "),
    ]
    with ExitStack() as stack:
        wires = [(stack.enter_context(Wire(api.port)).send(start), drop) for start, drop in starts]

        def each_has_heard() -> bool:
            # A list: those that have not heard yet send on, whatever the others did.
            heard = [wire.hears(seconds=0) or not wire.send(drop) for wire, drop in wires]
            return all(heard)

        eventually(each_has_heard, seconds=PATIENCE_SECONDS)
        for wire, _ in wires:
            assert wire.answer().is_problem(408, "request_timeout")


def test_a_connection_is_not_kept_by_line_feeds_or_by_nothing(api: ApiProcess) -> None:
    with Wire(api.port) as silent, Wire(api.port) as feeding:
        for wire in (silent, feeding):
            assert wire.send(get("/healthz")).answer().status == 200
        eventually(
            lambda: feeding.hears(seconds=0) or not feeding.send("\r\n"),
            seconds=PATIENCE_SECONDS,
        )
        assert feeding.ended()
        assert silent.ended()


def test_a_body_in_pieces_is_taken(wire: Wire, key: str) -> None:
    wire.send(post("/v1/events", b"", key, length=len(EVENT)))
    for place in range(len(EVENT)):
        wire.send(EVENT[place : place + 1])
    assert wire.answer().status == 202


@pytest.mark.parametrize(("length", "status"), [(TARGET_BYTES, 404), (TARGET_BYTES + 1, 414)])
def test_targets_have_a_length(wire: Wire, length: int, status: int) -> None:
    answer = wire.send(get("/" + "a" * (length - 1))).answer()
    assert answer.status == status
    assert status == 404 or answer.is_problem(414, "target_too_long")


@pytest.mark.parametrize(
    "size",
    # Host takes 12 bytes of the block; X: with its separator and line feed 5.
    # Of the last the server leaves most unread: it must not reset the connection for that.
    [HEAD_BYTES - 12 - 5, HEAD_BYTES - 12 - 4, 2**22],
    ids=["just fits", "a byte more", "4 MiB"],
)
def test_header_fields_have_a_size(wire: Wire, size: int) -> None:
    answer = wire.send(get("/healthz", "X: " + "a" * size)).answer()
    if size <= HEAD_BYTES - 12 - 5:
        assert answer.status == 200
    else:
        assert answer.is_problem(431, "head_too_large")
        assert wire.ended()


def test_a_field_that_never_ends_is_cut_off(wire: Wire) -> None:
    wire.send("GET /healthz HTTP/1.1\r\nX: ")
    # Of the bytes that come with the head's first, those of one read are not counted.
    sent = 0
    while not wire.hears(seconds=0.0):
        wire.send("x" * 1024)
        assert (sent := sent + 1) < 4096
    assert wire.answer().is_problem(431, "head_too_large")


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"hello\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost here\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/events HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/2.0\r\nHost: here\r\n\r\n",
        b"GET /healthz HTTP/0.9\r\nHost: here\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_not_http_is_told_so(wire: Wire, sent: bytes) -> None:
    assert wire.send(sent).answer().is_problem(400, "not_http")
    assert wire.ended()


@pytest.mark.parametrize("hosts", [(), ("Host: here", "Host: here"), ("Host: here", "hOST: there")])
def test_a_request_of_http_1_1_names_one_host(wire: Wire, hosts: tuple[str, ...]) -> None:
    head = "\r\n".join(["GET /healthz HTTP/1.1", *hosts, "", ""])
    assert wire.send(head).answer().is_problem(400, "not_one_host")
    assert wire.ended()


def test_a_request_of_http_1_0_needs_no_host(wire: Wire) -> None:
    assert wire.send("GET /healthz HTTP/1.0\r\n\r\n").answer().status == 200
    assert wire.ended()


CHUNKED = b"10\r\n" + EVENT[:16] + b"\r\n" + b"%x\r\n" % (len(EVENT) - 16) + EVENT[16:] + b"\r\n"


def chunked(*fields: str) -> bytes:
    """A POST of an event in two chunks."""
    head = ["POST /v1/events HTTP/1.1", "Host: here", "Content-Type: application/json", *fields]
    return "\r\n".join([*head, "", ""]).encode() + CHUNKED + b"0\r\n\r\n"


@pytest.mark.parametrize(
    "codings",
    [
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: gzip", "Transfer-Encoding: chunked"],
    ],
)
def test_a_transfer_coding_that_is_not_read_is_answered_501(
    wire: Wire, key: str, codings: list[str]
) -> None:
    wire.send(chunked(key, *codings))
    assert wire.answer().is_problem(501, "unknown_transfer_coding")
    assert wire.ended()


@pytest.mark.parametrize("around", [" ", "\t", " \t "])
def test_white_space_around_a_field_is_no_part_of_it(wire: Wire, key: str, around: str) -> None:
    name, _, value = key.partition(": ")
    fields = (
        f"{name}:{around}{value}{around}",
        # The parser itself knows no tab behind this one: 400 then, in order.
        "Transfer-Encoding: Chunked ",
        f"Expect:{around}100-continue{around}",
    )
    wire.send(chunked(*fields))
    assert wire.answer().status == 100
    assert wire.answer().status == 202


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
BODIES = {
    "sized": lambda *fields: post("/v1/events", EVENT, *fields),
    "chunked": lambda *fields: chunked("Transfer-Encoding: chunked", *fields),
}
each_offer = pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
each_body = pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)


@each_offer
def test_an_upgrade_is_not_taken_up(wire: Wire, offer: tuple[str, ...]) -> None:
    for _ in range(2):
        answer = wire.send(get("/healthz", *offer)).answer()
        assert answer.status == 200
        assert "upgrade" not in answer.headers
    assert wire.send(get("/healthz")).answer().status == 200


@each_body
@each_offer
def test_a_request_that_offers_another_protocol_keeps_its_body(
    wire: Wire, key: str, offer: tuple[str, ...], body: Callable[..., bytes]
) -> None:
    assert wire.send(body(key, *offer)).answer().document["accepted"] == 1
    # In as many packets as there are bytes, and on the connection that stays open.
    sent = body(key, *offer)
    for place in range(len(sent)):
        wire.send(sent[place : place + 1])
    assert wire.answer().document["accepted"] == 1
    assert wire.send(get("/healthz")).answer().status == 200


@each_body
@each_offer
def test_requests_that_offer_another_protocol_are_answered_in_turn(
    wire: Wire, key: str, offer: tuple[str, ...], body: Callable[..., bytes]
) -> None:
    wire.send(
        body(key, *offer),
        get("/nowhere", *offer),
        body(key),
        body(key, *offer),
        post("/v1/events", EVENT, *offer),
        get("/healthz"),
    )
    assert [wire.answer().status for _ in range(6)] == [202, 404, 202, 202, 401, 200]


@each_offer
def test_a_client_that_offers_another_protocol_may_wait_to_be_told_to_go_on(
    wire: Wire, key: str, offer: tuple[str, ...]
) -> None:
    wire.send(post("/v1/events", b"", key, "Expect: 100-continue", *offer, length=len(EVENT)))
    assert wire.answer().status == 100
    assert wire.send(EVENT).answer().status == 202


@each_offer
def test_a_body_behind_an_offer_has_the_limits_of_every_body(
    api: ApiProcess, wire: Wire, key: str, offer: tuple[str, ...]
) -> None:
    wire.send(chunked(key, "Transfer-Encoding: chunked", *offer)[: -len(b"0\r\n\r\n")], b"zz\r\n")
    assert wire.answer().is_problem(400, "not_http")
    with Wire(api.port) as large, Wire(api.port) as stalled:
        large.send(post("/v1/events", b" " * (2**20 + 1), key, *offer))
        stalled.send(post("/v1/events", EVENT[:-1], key, *offer, length=len(EVENT)))
        assert large.answer().is_problem(413, "body_too_large")
        assert stalled.answer().is_problem(408, "request_timeout")


def test_requests_sent_at_once_are_answered_in_turn(wire: Wire, key: str) -> None:
    wire.send(get("/healthz"), post("/v1/events", EVENT, key), get("/nowhere"), get("/healthz"))
    assert [wire.answer().status for _ in range(4)] == [200, 202, 404, 200]


def test_rubbish_after_a_request_does_not_cost_it_its_answer(wire: Wire, key: str) -> None:
    wire.send(post("/v1/events", EVENT, key), b"\x00\x01\x02\x03\r\n\r\n")
    answer = wire.answer()
    assert (answer.status, answer.headers["connection"]) == (202, "close")
    assert wire.ended()


def test_a_body_that_is_no_body_is_told_so_in_its_turn(wire: Wire, key: str) -> None:
    broken = (
        f"POST /v1/events HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n{key}\r\n"
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n"
    )
    wire.send(get("/healthz"), broken)
    assert wire.answer().status == 200
    assert wire.answer().is_problem(400, "not_http")
    assert wire.ended()


def test_who_is_refused_in_the_middle_of_a_body_still_reads_why(wire: Wire) -> None:
    # More than the kernel keeps for us: a server that closed now would reset the connection.
    body = b" " * 2**24
    wire.send(post("/v1/events", body))
    assert wire.answer().is_problem(401, "missing_key")
    assert wire.send(get("/healthz")).answer().status == 200


def test_a_client_that_waits_to_be_told_to_go_on_is_not_left_with_half_a_request(
    wire: Wire,
) -> None:
    wire.send(post("/v1/events", b"", "Expect: 100-continue", length=100))
    assert wire.answer().is_problem(401, "missing_key")
    assert wire.ended()


def test_connections_over_the_limit_are_told_to_come_again(api: ApiProcess) -> None:
    most = int(LIMITS["SERVICE_MOST_CONNECTIONS"])
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(api.port)) for _ in range(most + 5)]
        # A refused one has its answer without having asked.
        refused = [wire for wire in wires[most:] if wire.hears(seconds=20)]
        answers = [wire.answer() for wire in refused]
        assert len(answers) == 5
        assert all(answer.is_problem(503, "overloaded") for answer in answers)
        assert {answer.headers["retry-after"] for answer in answers} == {"1"}
    eventually(api.answers)


def test_requests_over_the_limit_are_told_to_come_again(api: ApiProcess, key: str) -> None:
    most = int(LIMITS["SERVICE_MOST_REQUESTS"])
    begun = post("/v1/events", EVENT[:-1], key, length=len(EVENT))
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(api.port)).send(begun) for _ in range(most + 3)]
        eventually(lambda: sum(held.hears(seconds=0) for held in wires) >= 3)
        # Overload is no reason to be killed.
        with Wire(api.port) as other:
            assert other.send(get("/healthz")).answer().status == 200
        answers = [held.answer() for held in wires]
    refused = [answer for answer in answers if answer.is_problem(503, "overloaded")]
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    assert sorted(answer.status for answer in answers) == [408] * most + [503] * 3
    with Wire(api.port) as again:
        assert again.send(post("/v1/events", EVENT, key)).answer().status == 202


def test_no_wish_of_a_client_is_a_fault_in_the_log(api: ApiProcess) -> None:
    assert [word for word in ("Traceback", "ERROR") if word in Path(api.log).read_text()] == []
