"""A story told through REST, and what the walk makes of it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from domain.document import document_text
from domain.evidence.document import Evidence, evidence_of
from domain.lineage.flag import stratum_name
from orchestration.pipeline.steps import publish, stage_due
from storage.pipeline.increment import extend_cells, extend_exposures
from storage.schema.clock import claim_derived_tables, closed_instant

# A block begins here; long enough ago that everything in the stories has closed.
T = datetime(2026, 10, 1, tzinfo=UTC)

Cell = tuple[str, str, int, int, int, int]


def at(minutes: float) -> str:
    return (T + timedelta(minutes=minutes)).isoformat()


@dataclass(kw_only=True)
class Story:
    """Deploys, then traffic, then registrations: the order that history asks for."""

    service: Any
    events: list[dict[str, Any]]
    units: int = 0

    def deploy(self, sha: str, *, minutes: float, **members: Any) -> dict[str, Any]:
        base = members.pop("base", None)
        body = {"commit": {"sha": sha, **members.pop("commit", {})}, "deployed_at": at(minutes)}
        if base is not None:
            body["diff"] = {"base_commit": base, "files": []}
        answer = self.service.post("/v1/deploys", {**body, **members})
        assert answer.status_code == 201, answer.text
        return answer.json()["deploy"]

    def units_of(
        self, commit: str, *, minutes: float, units: int, converting: int = 0, **members: Any
    ) -> list[str]:
        """Sessions that a commit served, the first ones of which convert a minute later."""
        sessions = [f"s{self.units + i}" for i in range(units)]
        self.units += units
        for i, session in enumerate(sessions):
            event = {"session_id": session, "commit": commit, **members}
            self.events.append({**event, "event": "page_view", "occurred_at": at(minutes)})
            if i < converting:
                self.events.append({**event, "event": "order", "occurred_at": at(minutes + 1)})
        return sessions

    def crowd(
        self,
        commit: str,
        *,
        start: float,
        minutes: float,
        units: int,
        rates: dict[str, float] | None = None,
        **members: Any,
    ) -> list[str]:
        """Sessions spread evenly over a time; of each event exactly its rate, evenly too.

        Events come a minute after the exposure, except errors, which come at once. The rates of
        several events are spread apart, so that no two go hand in hand.
        """
        sessions = [f"s{self.units + i}" for i in range(units)]
        self.units += units
        for i, session in enumerate(sessions):
            when = start + minutes * (i + 0.5) / units
            told = {"session_id": session, "commit": commit, **members}
            self.events.append({**told, "event": "page_view", "occurred_at": at(when)})
            for number, (event, rate) in enumerate((rates or {}).items()):
                place = (i * 7919 ** (number + 1)) % units if units % 7919 else i
                if int((place + 1) * rate) > int(place * rate):
                    later = when if event == "error" else when + 1
                    self.events.append({**told, "event": event, "occurred_at": at(later)})
        return sessions

    def send(self) -> None:
        for begin in range(0, len(self.events), 500):
            batch = self.events[begin : begin + 500]
            answer = self.service.post("/v1/events?replay=true", {"events": batch})
            assert answer.status_code == 202, answer.text
            assert answer.json()["accepted"] == len(batch)
        self.events = []

    def register(self, **members: Any) -> str:
        """Registers without guardrails unless the story names some: a keep then waits for none."""
        members.setdefault("guardrails", [])
        answer = self.service.post("/v1/reward/register", {"target_metric": "order", **members})
        assert answer.status_code == 201, answer.text
        return answer.json()["experiment_id"]

    def walk(self, *, minutes: float | None = None) -> None:
        """Takes every step once, each in a transaction of its own; now, or as of some minutes."""
        engine = self.service.store.engine
        with engine.connect() as connection:
            as_of = closed_instant(connection)
        if minutes is not None:
            as_of = T + timedelta(minutes=minutes)

        def step(work: Callable[[Any], Any]) -> None:
            with engine.begin() as connection:
                claim_derived_tables(connection)
                work(connection)

        step(lambda c: extend_exposures(c, as_of=as_of))
        step(extend_cells)
        step(lambda c: stage_due(c, as_of=as_of))
        step(publish)

    def cells(self, experiment_id: str) -> list[Cell]:
        """(minutes after T, stratum, n1, x1, n0, x0) of the target's cells."""
        with self.service.store.engine.begin() as connection:
            rows = connection.execute(
                text(
                    "SELECT block, stratum, n1, x1, n0, x0 FROM cells"
                    " WHERE experiment_id = :id AND metric = 'order' ORDER BY block, stratum"
                ),
                {"id": experiment_id},
            ).all()
        return [
            (int((row.block - T).total_seconds() // 60), row.stratum, *tuple(row)[2:])
            for row in rows
        ]

    def contract(self, experiment_id: str) -> dict[str, Any]:
        answer = self.service.get(f"/v1/reward/{experiment_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def evidence(self, experiment_id: str) -> dict[str, Any]:
        """The evidence document; each that a story reads is what its structs write."""
        answer = self.service.get(f"/v1/reward/{experiment_id}/evidence")
        assert answer.status_code == 200, answer.text
        assert document_text(evidence_of(answer.content)) == answer.text
        return answer.json()

    def decoded(self, experiment_id: str) -> Evidence:
        """The same evidence as a face reads it."""
        evidence = evidence_of(document_text(self.evidence(experiment_id)))
        assert isinstance(evidence, Evidence)
        return evidence


@pytest.fixture
def story(service) -> Story:
    service.settings(locked=[])
    return Story(service=service, events=[])


@pytest.fixture
def stratum() -> Callable[..., str]:
    """The name of the stratum of these changes."""
    return lambda *changes: stratum_name(changes)
