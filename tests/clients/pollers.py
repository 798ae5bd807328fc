"""Pollers: clients that read verdicts and evidence, and rollouts that ask the release gate."""

import http.client
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from tests.clients.delivery import TREATMENT

POLICIES = ("keep", "no-breach", "no-harm:0.2")

Answer = tuple[int, str]


@dataclass(frozen=True, kw_only=True)
class Question:
    method: str
    path: str
    body: Any = None

    def opens(self, before: Answer, after: Answer) -> bool:
        """Whether a rollout that was held, or sent back, was let go on by an answer."""
        if "/gate" not in self.path:
            return False
        if "want=rollback" in self.path:
            return (before[0], after[0]) == (200, 403)
        if self.method == "POST":
            return (before[0], after[0]) == (403, 200)
        was, now = (json.loads(answer[1]).get("phase") for answer in (before, after))
        return was != now == "Successful"


def questions_of(metrics: Mapping[str, str]) -> list[Question]:
    """Returns what is asked of the experiments of these metrics, by name; gates of each policy."""
    asked: list[Question] = []
    for metric, experiment in metrics.items():
        path = f"/v1/reward/{experiment}"
        asked += [
            Question(method="GET", path=path),
            Question(method="GET", path=f"{path}/evidence"),
        ]
        meant = {"treatment_commit": TREATMENT, "target_metric": metric}
        for policy in POLICIES:
            named = urlencode({**meant, "policy": policy})
            asked.append(Question(method="GET", path=f"/v1/reward/gate?{named}"))
        flagger = {"name": "shop", "namespace": "production", "phase": "Progressing"}
        for want in ("go", "rollback"):
            asked.append(
                Question(
                    method="POST",
                    path=f"/v1/reward/gate?want={want}",
                    body={**flagger, "metadata": {**meant, "policy": "no-breach"}},
                )
            )
    return asked


@dataclass(kw_only=True)
class Pollers:
    """A connection for each question; `opened` are the flips that wrongly let a rollout go on."""

    questions: Sequence[Question]
    connections: Sequence[http.client.HTTPConnection]
    key: str
    editions: list[list[Answer]] = field(default_factory=list)
    latest: list[int] = field(default_factory=list)
    answers: int = 0
    flips: list[str] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)

    def ask(self) -> list[Answer]:
        headers = {"X-Service-Project-Key": self.key, "Content-Type": "application/json"}
        for question, connection in zip(self.questions, self.connections, strict=True):
            body = None if question.body is None else json.dumps(question.body)
            connection.request(question.method, question.path, body=body, headers=headers)
        answers: list[Answer] = []
        for connection in self.connections:
            answer = connection.getresponse()
            answers.append((answer.status, answer.read().decode()))
        return answers

    def expect(self, *editions: Sequence[Answer]) -> None:
        """Admits these answers from now on, in their order."""
        self.editions = [list(each) for each in zip(*editions, strict=True)]
        self.latest = [0] * len(self.questions)

    def poll(self) -> None:
        """Asks everything once, and notes what was answered otherwise than it may be."""
        for number, answer in enumerate(self.ask()):
            self.answers += 1
            earliest, editions = self.latest[number], self.editions[number]
            if answer in editions[earliest:]:
                self.latest[number] = editions.index(answer, earliest)
                continue
            question = self.questions[number]
            result = f"{question.method} {question.path}: {answer[0]} {answer[1][:200]}"
            self.flips.append(result)
            if question.opens(editions[earliest], answer):
                self.opened.append(result)


@contextmanager
def pollers(port: int, key: str, questions: Sequence[Question]) -> Generator[Pollers]:
    """Pollers before a port of this machine, for as long as the context lasts."""
    connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for _ in questions]
    try:
        yield Pollers(questions=questions, connections=connections, key=key)
    finally:
        for connection in connections:
            connection.close()
