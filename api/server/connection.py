"""A client's connection: HTTP/1.1 as uvicorn parses it, with limits on the client's resources."""

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import httptools

from api.runtime.settings import ServerLimits
from api.server.uvicorn_protocol import (
    STATUS_LINE,
    ASGI3Application,
    ASGIReceiveCallable,
    ASGISendCallable,
    Config,
    HttpToolsProtocol,
    RequestResponseCycle,
    Scope,
    ServerState,
)
from api.wire.problem import Problem, problem_document

_log = logging.getLogger("api.connection")

_SWEEP_SECONDS = 1.0
# What a client still sends after our last word is read and dropped for so long: closing on
# unread data resets the connection, and the client then loses the answer.
_LINGER_SECONDS = 1.0
# A client that keeps its connection busy sends its next request within this time; the answer
# to that one tells it to leave.
LAST_REQUEST_SECONDS = 1.0
_RETRY = {"Retry-After": "1"}
# Asked by what decides whether a process lives: overload is no reason to kill it.
_ALWAYS_ANSWERED = frozenset({b"/healthz", b"/metrics"})

_NOT_HTTP = Problem("not_http", "this is a server of HTTP/1.1")
# RFC 9112, 3.2: two servers on the way could read two different hosts out of it.
_NOT_ONE_HOST = Problem("not_one_host", "a request of HTTP/1.1 has exactly one Host field")
_UNKNOWN_CODING = Problem(
    "unknown_transfer_coding",
    "the only transfer coding read here is chunked: compress the body by Content-Encoding",
)
_TARGET_TOO_LONG = Problem("target_too_long", "path and query are too long")
_HEAD_TOO_LARGE = Problem("head_too_large", "the header fields are too large")
_LATE_HEAD = Problem("request_timeout", "the request's head took too long")
_LATE_BODY = Problem("request_timeout", "the request's body stalled, or came too slowly")
_OVERLOADED = Problem("overloaded", "more at once than the service takes", headers=_RETRY)
_STOPPING = Problem("stopping", "the service stopped before it could answer", headers=_RETRY)


class _Phase(IntEnum):
    """The part of a message that the parser reads."""

    # Nothing of a request has come yet on this connection.
    OPENED = 0
    HEAD = 1
    BODY = 2
    # Between two requests.
    DONE = 3


class _Transport:
    """uvicorn's transport, but for two things.

    The head of an answer waits for its body, which uvicorn writes right after it: one packet and
    one call of the kernel instead of two. And at its end comes first the word that we end, then
    the bytes that the client still sends.
    """

    __slots__ = (
        "_answering",
        "_connection",
        "_ended",
        "_head",
        "_transport",
        "get_extra_info",
        "get_write_buffer_size",
    )

    def __init__(self, transport: asyncio.Transport, connection: "Connection") -> None:
        self._transport = transport
        self._connection = connection
        self._ended = False
        self._answering: RequestResponseCycle | None = None
        self._head: bytes | None = None
        # Bound here: a request must not pay for this class.
        self.get_extra_info = transport.get_extra_info
        self.get_write_buffer_size = transport.get_write_buffer_size

    def write(self, data: bytes) -> None:
        running = self._connection.running
        if self._head is not None:
            data = self._head + data
            self._head = None
        elif running is not self._answering and running is not None and running.response_started:
            # The first that is written of an answer is its head.
            self._answering = running
            self._head = data
            return
        self._transport.write(data)

    def flush(self) -> None:
        if self._head is not None:
            self.write(b"")

    def is_closing(self) -> bool:
        return self._ended or self._transport.is_closing()

    def close(self) -> None:
        if not self.is_closing():
            self.flush()
            self._ended = True
            self._transport.write_eof()
            self._connection.linger(self._transport)

    def pause_reading(self) -> None:
        if not self.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def abort(self) -> None:
        self._transport.abort()


class Connection(HttpToolsProtocol):
    """One connection, whose time-outs are found by its process's sweep.

    A request costs it no timer and no look at a clock: bytes in and out are counted, and
    `look`, called each second, compares the counts with those of its last call.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None,
        shared: "Connections",
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._shared = shared
        self._limits = shared.limits
        self._application = self.app
        self._phase = _Phase.OPENED
        self._messages = 0
        # The request whose answer is next; `cycle` is the one that came last.
        self.running: RequestResponseCycle | None = None
        # Bytes of header fields, and all bytes, since the message began.
        self._head_bytes = 0
        self._received = 0
        # Of the message: its Host fields, and the transfer codings that it names.
        self._hosts = 0
        self._codings: list[bytes] = []
        self._breach: Problem | None = None
        # Whether what comes is dropped, and whether this is the last request.
        self._deaf = False
        self._leaving = False
        self._lingering: asyncio.TimerHandle | None = None
        # As of the sweep's last look.
        self._seen: tuple[int, ...] = ()
        self._seen_received = 0
        self._waited = 0
        self._silent = 0

    # uvicorn's own narrows asyncio's signature likewise.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes the connection, unless there are too many."""
        self._kept = kept = _Transport(transport, self)
        super().connection_made(kept)  # pyright: ignore[reportArgumentType] - what uvicorn calls
        open_now = len(self.connections)
        if open_now > 2 * self._limits.most_connections:
            # Not even a word: those that were refused with one still linger.
            self._shared.refused["overloaded"] += 1
            transport.abort()
        elif open_now > self._limits.most_connections:
            # At once: a place in a queue that silent sockets fill would be worth nothing, and a
            # balancer can turn to another process.
            self._refuse(_OVERLOADED)
        elif self._shared.stopping:
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Lets go of the connection."""
        self._deaf = True
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads on."""
        if self._deaf:
            return
        messages = self._messages
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._refuse(self._breach or _NOT_HTTP)
            return
        if self._phase != _Phase.HEAD:
            self._received += len(data)
        # The chunk in which a head begins may be the end of a long body.
        elif self._messages == messages:
            self._received += len(data)
            if self._received > self._most_of_a_head:
                self._refuse(_HEAD_TOO_LARGE)

    def _parse(self, data: bytes) -> None:
        """Parses received bytes; a request that offers another protocol is read as HTTP/1.1.

        Java's HttpClient and `curl --http2` send `Upgrade: h2c` with every request over http://.
        A server that does not take the offer reads the request as if it had not been made
        (RFC 9110, 7.8), but the parser stops behind its head and skips its body.
        """
        rest = memoryview(data)
        while True:
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as offer:
                rest = rest[offer.args[0] :]
                self.parser = _ParserBehindHead(self).parser
                self.parser.feed_data(_framing(self.headers))
            else:
                return

    @property
    def _most_of_a_head(self) -> int:
        """Bytes of a head: a single field that never ends is not told to us by the parser."""
        return self._limits.head_bytes + self._limits.target_bytes

    def on_message_begin(self) -> None:
        """Begins a request."""
        self._phase = _Phase.HEAD
        self._messages += 1
        self._head_bytes = 0
        self._received = 0
        self._hosts = 0
        self._codings = []
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Takes a part of the target.

        Raises:
            ValueError: It is too long, which ends the parser's work.
        """
        self.url += url
        if len(self.url) > self._limits.target_bytes:
            self._breach = _TARGET_TOO_LONG
            raise ValueError(_TARGET_TOO_LONG.detail)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header field, or a trailer's.

        Raises:
            ValueError: They are too large, which ends the parser's work.
        """
        self._head_bytes += len(name) + len(value) + 4
        if self._head_bytes > self._limits.head_bytes:
            self._breach = _HEAD_TOO_LARGE
            raise ValueError(_HEAD_TOO_LARGE.detail)
        name = name.lower()
        # RFC 9110, 5.5: no part of the value. The parser takes away only what stands before it.
        value = value.strip(b" \t")
        if name == b"host":
            self._hosts += 1
        elif name == b"transfer-encoding":
            self._codings.append(value.lower())
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begins the answer, or has it wait for those before it."""
        before = None if self.running is None else self.cycle
        self._phase = _Phase.BODY
        self.app = self._application_for_head()
        super().on_headers_complete()
        if self._leaving:
            self.cycle.keep_alive = False
            if before is not None and not before.response_started:
                # All that was asked is answered: the last answer ends the connection.
                before.keep_alive = True

    def _application_for_head(self) -> ASGI3Application:
        """Returns the application, or what refuses a request in its place."""
        if (problem := self._problem_of_head()) is not None:
            self._shared.refused[problem.code] += 1
            return _Refusal(problem, connection=b"close")
        if len(self.tasks) < self._limits.most_requests or self.url in _ALWAYS_ANSWERED:
            return self._application
        self._shared.refused["overloaded"] += 1
        return _REFUSED_FOR_LOAD

    def _problem_of_head(self) -> Problem | None:
        """Returns why a head is refused that the parser takes."""
        version = self.parser.get_http_version()
        if version not in {"1.1", "1.0"}:
            return _NOT_HTTP
        if self._hosts != 1 and (self._hosts or version == "1.1"):
            return _NOT_ONE_HOST
        if self._codings and self._codings != [b"chunked"]:
            return _UNKNOWN_CODING
        return None

    def on_message_complete(self) -> None:
        """Ends a request's body."""
        if self.parser.should_upgrade():
            # The parser skips the body of a request that offers another protocol: see `_parse`.
            return
        self._phase = _Phase.DONE
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Goes on with the next request; uvicorn's own does so with a timer for each."""
        self.server_state.total_requests += 1
        # An answer to HEAD has no body.
        self._kept.flush()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._phase == _Phase.BODY and self.expect_100_continue:
            # RFC 9110, 10.1.1: the client may now send the body, or not.
            self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.running = cycle
        super()._start_asgi_task(cycle, app)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's signature
        """Answers 400 to bytes that are not HTTP."""
        self._refuse(_NOT_HTTP)

    def look(self) -> None:
        """Ends the connection when its client has made us wait for too long."""
        stage = self._stage()
        if stage != self._seen:
            self._seen, self._waited, self._silent = stage, 0, 0
        elif self._received == self._seen_received:
            self._silent += 1
        else:
            self._silent = 0
        self._seen_received = self._received
        self._waited += 1
        if self.transport.get_write_buffer_size():
            self._look_at_answer()
        elif self.flow.read_paused:
            # We are the ones who make it wait.
            self._waited, self._silent = self._waited - 1, 0
        elif not self.transport.is_closing():
            self._look_at_request()

    def _stage(self) -> tuple[int, ...]:
        return self._phase, self._messages, self._answered, self.transport.get_write_buffer_size()

    @property
    def _answered(self) -> bool:
        return self.running is None or self.cycle.response_complete

    def _look_at_answer(self) -> None:
        if self._waited > self._limits.body_seconds:
            self._shared.refused["answer_not_read"] += 1
            self.transport.abort()

    def _look_at_request(self) -> None:
        if self._phase == _Phase.BODY:
            self._look_at_body()
        elif self._phase == _Phase.DONE:
            if self._answered and self._waited > self._limits.idle_seconds:
                self.transport.close()
        elif self._waited > self._limits.head_seconds:
            self._end_late_head()

    def _end_late_head(self) -> None:
        if self._phase == _Phase.HEAD:
            self._refuse(_LATE_HEAD)
        else:
            # Browsers open connections in advance: a word that nobody asked for would be taken
            # for the answer to a request that crosses it.
            self._shared.refused[_LATE_HEAD.code] += 1
            self.transport.close()

    def _look_at_body(self) -> None:
        seconds = self._limits.body_seconds
        if self._answered:
            # What is left of a body that did not interest us is read for so long.
            if self._waited > seconds:
                self.transport.close()
        elif not self.pipeline and (
            self._silent >= seconds
            or self._received < (self._waited - seconds) * self._limits.body_rate
        ):
            self._refuse(_LATE_BODY)

    def _refuse(self, problem: Problem) -> None:
        """Answers in the application's place, in its turn, and ends the connection."""
        self._shared.refused[problem.code] += 1
        self._deaf = True
        if self._answered:
            self._write(problem)
        elif self._phase != _Phase.BODY:
            # Requests before it are whole, and have their answers first; it gets none.
            self.cycle.keep_alive = False
        elif self.pipeline:
            self.pipeline[0] = (self.cycle, _Refusal(problem, connection=b"close"))
        else:
            self._give_up(problem)

    def _give_up(self, problem: Problem) -> None:
        """Answers a request that the application has begun with and will not finish."""
        running = self.running
        if running is not None:
            if not running.response_started:
                self._write(problem)
            running.disconnected = True
            running.message_event.set()
        self.pipeline.clear()
        self.transport.close()

    def _write(self, problem: Problem) -> None:
        headers, body = _answer(problem)
        self.transport.write(
            b"".join(
                [
                    STATUS_LINE[problem.status],
                    *(
                        b"%s: %s\r\n" % field
                        for field in (*self.server_state.default_headers, *headers)
                    ),
                    b"connection: close\r\n\r\n",
                    body,
                ]
            )
        )
        self.transport.close()

    def linger(self, transport: asyncio.Transport) -> None:
        """Reads and drops what still comes, for a moment, after our side has ended."""
        self._deaf = True
        self.flow.resume_reading()
        self._lingering = self.loop.call_later(_LINGER_SECONDS, self._part, transport)

    def _part(self, transport: asyncio.Transport) -> None:
        if transport.get_write_buffer_size():
            # Its last answer is still on the way; when that stalls, the sweep ends it.
            self.linger(transport)
        else:
            transport.close()

    def shutdown(self) -> None:
        """Answers the requests received so far, and within a moment more; then ends."""
        self._leaving = True
        if self._answered:
            self.loop.call_later(LAST_REQUEST_SECONDS, self._leave)
        else:
            self.cycle.keep_alive = False

    def _leave(self) -> None:
        if self._answered and self._phase != _Phase.HEAD:
            self.transport.close()

    def end_unanswered(self) -> None:
        """Ends the connection now, with a word where an answer is owed and has not begun."""
        if not self._answered:
            self._shared.refused[_STOPPING.code] += 1
            self._give_up(_STOPPING)
        elif self._phase == _Phase.HEAD:
            self._refuse(_STOPPING)
        else:
            self.transport.close()


class _ParserBehindHead:
    """The callbacks of a parser that begins behind a head which another parser has read.

    The first head that it reads only says where the body ends: the connection knows that head.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._is_first_head = True
        self.on_body = connection.on_body
        self.on_message_complete = connection.on_message_complete
        self.parser = httptools.HttpRequestParser(self)
        # As uvicorn's own.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def on_message_begin(self) -> None:
        if not self._is_first_head:
            self._connection.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_first_head:
            self._connection.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_first_head:
            self._connection.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_first_head:
            self._is_first_head = False
        else:
            self._connection.on_headers_complete()


def _framing(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Returns a head that says of its body what these header fields say, and nothing else."""
    fields = [
        b"%s: %s\r\n" % (name, value)
        for name, value in headers
        if name in {b"content-length", b"transfer-encoding"}
    ]
    return b"".join([b"POST / HTTP/1.1\r\n", *fields, b"\r\n"])


class Connections:
    """The connections of one process: makes them, and looks after them each second."""

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        self.stopping = False
        # How often the server answered in the application's place, by code, since it last told.
        self.refused: Counter[str] = Counter()
        self._next: asyncio.TimerHandle | None = None

    def __call__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> Connection:
        """Returns a new connection; uvicorn asks."""
        return Connection(config, server_state, app_state, _loop, self)

    def watch(self, loop: asyncio.AbstractEventLoop, state: ServerState) -> None:
        """Looks at each connection now, and again each second."""
        for connection in list(state.connections):
            if isinstance(connection, Connection):
                connection.look()
        if self.refused:
            counts = ", ".join(f"{code} {count}" for code, count in sorted(self.refused.items()))
            _log.warning("refused: %s", counts)
            self.refused.clear()
        self._next = loop.call_later(_SWEEP_SECONDS, self.watch, loop, state)

    def unwatch(self) -> None:
        """Looks no more."""
        if self._next is not None:
            self._next.cancel()


class _Refusal:
    """An application that answers every request with one problem."""

    def __init__(self, problem: Problem, *, connection: bytes | None = None) -> None:
        self._problem = problem
        self._more = [] if connection is None else [(b"connection", connection)]

    async def __call__(
        self, _scope: Scope, _receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        headers, body = _answer(self._problem)
        status = self._problem.status
        fields = [*headers, *self._more]
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": body, "more_body": False})


_REFUSED_FOR_LOAD: ASGI3Application = _Refusal(_OVERLOADED)


def _answer(problem: Problem) -> tuple[Iterable[tuple[bytes, bytes]], bytes]:
    request_id = secrets.token_hex(12)
    body = problem_document(problem, request_id)
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", request_id.encode()),
        *((name.lower().encode(), value.encode()) for name, value in problem.headers.items()),
    ]
    return headers, body
