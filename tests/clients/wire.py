"""A client that sends bytes, and reads answers in turn."""

import json
import select
import socket
from dataclasses import dataclass
from typing import Any, Self

# Far beyond what anything here takes; it only ends a test that hangs.
PATIENCE_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    def is_problem(self, status: int, code: str) -> bool:
        """Whether it tells of that problem, in the form of all problems."""
        return (
            self.status == status
            and self.headers["content-type"] == "application/problem+json"
            and self.document["code"] == code
            and self.document["status"] == status
            and self.document["request_id"] == self.headers["x-request-id"]
        )


class Wire:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, *parts: bytes | str) -> Self:
        self._socket.sendall(
            b"".join(part.encode() if isinstance(part, str) else part for part in parts)
        )
        return self

    def hears(self, *, seconds: float) -> bool:
        """Whether something came, or the end, within that time."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def answer(self) -> Answer:
        status = int(self._file.readline().split()[1])
        headers: dict[str, str] = {}
        while line := self._file.readline().strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        body = self._file.read(int(headers.get("content-length", 0)))
        return Answer(status=status, headers=headers, body=body)

    def ended(self) -> bool:
        """Whether the server closes in order, and sends nothing before; a reset raises."""
        return self._file.read(1) == b""


def get(path: str, *fields: str) -> str:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: here", *fields, "", ""])


def post(path: str, body: bytes, *fields: str, length: int | None = None) -> bytes:
    """A POST of JSON; `length` announces another than the body has."""
    announced = f"Content-Length: {len(body) if length is None else length}"
    head = [f"POST {path} HTTP/1.1", "Host: here", "Content-Type: application/json", announced]
    return "\r\n".join([*head, *fields, "", ""]).encode() + body
