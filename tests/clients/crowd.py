"""A crowd: many connections that ask before any of them is answered."""

import http.client
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """Connections that stay open from a round to the next."""

    connections: Sequence[http.client.HTTPConnection]
    key: str

    def get(self, path: str, *, unless: str | None = None) -> list[Answer]:
        """Asks on every connection, then returns their answers; none that has this ETag."""
        headers = {"If-None-Match": unless} if unless else {}
        self._ask("GET", [(path, None)] * len(self.connections), headers)
        return self.answers()

    def post(self, path: str, bodies: Sequence[Any]) -> list[Answer]:
        """Posts a body on each connection, then returns the answers."""
        self.ask_all(path, bodies)
        return self.answers()

    def ask_all(self, path: str, bodies: Sequence[Any]) -> None:
        """Posts a body on each connection, all of them written when this returns."""
        answer = [(path, json.dumps(body)) for body in bodies]
        self._ask("POST", answer, {"Content-Type": "application/json"})

    def answers(self) -> list[Answer]:
        return [_answer(connection) for connection in self.connections]

    def _ask(
        self, method: str, asked: Sequence[tuple[str, str | None]], more: Mapping[str, str]
    ) -> None:
        headers = {"X-Service-Project-Key": self.key, **more}
        for connection, (path, body) in zip(self.connections, asked, strict=True):
            connection.request(method, path, body=body, headers=headers)


def _answer(connection: http.client.HTTPConnection) -> Answer:
    answer = connection.getresponse()
    headers = {name.lower(): value for name, value in answer.getheaders()}
    return Answer(status=answer.status, headers=headers, body=answer.read())


@contextmanager
def crowd(port: int, key: str, *, size: int = 50) -> Generator[Crowd]:
    """A crowd before a port of this machine, for as long as the context lasts."""
    connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=30) for _ in range(size)]
    try:
        yield Crowd(connections=connections, key=key)
    finally:
        for connection in connections:
            connection.close()
