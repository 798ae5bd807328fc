"""A receiver of webhooks: a real server in a thread, which answers as a test asks."""

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.body)

    def is_signed_with(self, secret: str) -> bool:
        """Standard Webhooks 1.0.0, written down a second time."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        content = f"{self.id}.{self.headers['webhook-timestamp']}.".encode() + self.body
        answer = base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
        return f"v1,{answer}" in self.headers["webhook-signature"].split(" ")


@dataclass(kw_only=True)
class Receiver:
    """What was received, and what is answered: by default 204."""

    port: int
    got: list[Received] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    # Called between a request and its answer.
    meanwhile: Callable[[Received], object] = lambda _: None
    arrived: threading.Condition = field(default_factory=threading.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def answer(self, *statuses: int, **headers: str) -> None:
        result = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers += [(status, result) for status in statuses]

    def wait_for(self, count: int) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.got) >= count, timeout=60)


def _handler(receiver: Callable[[], Receiver]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            to = receiver()
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            received = Received(path=self.path, headers=headers, body=body)
            with to.arrived:
                to.got.append(received)
                status, answer = to.answers.pop(0) if to.answers else (204, {})
                to.arrived.notify_all()
            to.meanwhile(received)
            try:
                self.send_response(status)
                for name, value in {"Content-Length": "0", **answer}.items():
                    self.send_header(name, value)
                self.end_headers()
            except OSError:
                self.close_connection = True  # whoever asked is gone

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its signature)
            pass

    return Handler


@contextmanager
def receiving() -> Generator[Receiver]:
    result: list[Receiver] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(lambda: result[0]))
    result.append(Receiver(port=server.server_address[1]))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield result[0]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
