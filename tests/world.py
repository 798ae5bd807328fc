"""The world of a test: a project behind the API, its deploys, traffic, experiments and verdicts.

    world.canary()
    world.crowd(K, start=0, minutes=60, units=500, rates={"order": 0.4})
    world.send()
    experiment = world.register(treatment_commit=K, target_metric="order")
    assert world.answer(experiment, minutes=1440) == ("keep", None, True)

The fixtures `service`, `tenant` and `story` are such worlds. `record_deploy` and
`register_experiment` do the same in a transaction on a store, for tests that start no API.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import Connection, text

from domain.document import document_text
from domain.evidence.document import Evidence, evidence_of
from domain.registration import PRODUCTION, Registration
from storage.experiments import deploys, experiments
from storage.tenants.keys import KeyKind
from storage.tenants.projects import CreatedProject, create_key, create_project
from storage.tenants.setting_changes import apply_settings
from storage.upkeep.invariants import lost_sessions, units_that_do_not_add_up
from tests.stores.pipeline_run import freeze_registered, run_pipeline
from tests.stores.publication import publish

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from tests.conftest import Store

# Minute 0: a block begins here, long enough ago that every block of a test has closed.
T = datetime(2026, 10, 1, tzinfo=UTC)
# The build that users have, and a canary's.
A, K = "aaaaaaa1", "ccccccc3"
# A day in minutes, which all times of a world count in.
DAY = 1440.0
# A registration whose keep waits for no guardrail.
ON_ORDERS = {"target_metric": "order", "guardrails": []}
_BATCH = 500
_LIVE = """registered_at = starts_at, policy = policy || '{"retrospective": false}'"""
AS_LIVE = text(f"UPDATE experiments SET {_LIVE}")
GOES_ON = text("""
UPDATE histories AS h SET newest_at = (
    SELECT max(d.deployed_at) FROM deploys AS d
    WHERE d.project_id = h.project_id AND d.environment = h.environment
      AND d.deployed_at <= h.newest_at
)
""")

# What the project key opens.
_OF_PROJECT = ("/v1/reward", "/v1/places")

Cell = tuple[str, str, int, int, int, int]


def at(minutes: float) -> str:
    """The time so many minutes after T, as a request has it."""
    return (T + timedelta(minutes=minutes)).isoformat()


def record_deploy(
    connection: Connection,
    project_id: int,
    sha: str,
    deployed_at: datetime | None = None,
    allocation: float | None = None,
    *,
    base: str | None = None,
    changes: Sequence[str] = (),
    environment: str = PRODUCTION,
    graph: Mapping[str, Any] | None = None,
) -> str:
    """Records a deploy, at the store's time where it names none, and returns its id."""
    request = deploys.DeployRequest(
        environment=environment,
        commit={"sha": sha, **({"changes": changes} if changes else {})},
        deployed_at=deployed_at,
        graph=graph,
        diff=None if base is None else {"base_commit": base, "files": []},
        allocation=allocation,
        idempotency_key=None,
    )
    record = deploys.record_deploy(connection, project_id, request).record
    freeze_registered(connection)
    return record.deploy_id


def register_experiment(connection: Connection, project_id: int, **members: Any) -> str:
    """Registers an experiment, freezes its policy, and returns its id."""
    registration = Registration(**members)
    experiment_id = experiments.register(connection, project_id, registration).experiment_id
    freeze_registered(connection)
    return experiment_id


@dataclass(kw_only=True)
class World:
    """A project and its keys, in a store behind the API.

    Attributes:
        registration: The members that each registration has unless a test gives its own.
        begin: Minute 0 of its times.
    """

    store: "Store"
    client: "TestClient"
    project: CreatedProject
    registration: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    units: int = 0
    begin: datetime = T
    write: dict[str, str] = field(init=False)
    public: dict[str, str] = field(init=False)
    reward: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.write, self.public, self.reward = (
            {"X-Service-Project-Key": self.project.keys[kind]}
            for kind in (KeyKind.WRITE, KeyKind.PUBLIC, KeyKind.PROJECT)
        )

    @classmethod
    def new(cls, store: "Store", client: "TestClient", name: str = "shop", **members: Any) -> Self:
        with store.engine.begin() as connection:
            project = create_project(connection, name)
        return cls(store=store, client=client, project=project, **members)

    # --- The project ----------------------------------------------------------------------

    @property
    def project_id(self) -> int:
        return self.project.project_id

    def in_store(self, work: Callable[[Connection], Any]) -> Any:
        """Returns what `work` returns in a single transaction on the store."""
        with self.store.engine.begin() as connection:
            return work(connection)

    def new_project(self, name: str) -> CreatedProject:
        return self.in_store(lambda connection: create_project(connection, name))

    def new_key(self, kind: KeyKind) -> str:
        return self.in_store(lambda connection: create_key(connection, self.project_id, kind))

    def settings(self, **chosen: Any) -> None:
        self.in_store(lambda connection: apply_settings(connection, self.project_id, chosen))

    def post(self, path: str, body: Any, **options: Any) -> Any:
        """Posts JSON with the write key, or the project key where it opens; returns the answer."""
        key = self.reward if path.startswith(_OF_PROJECT) else self.write
        return self.client.post(path, json=body, **{"headers": key, **options})

    def get(self, path: str, **options: Any) -> Any:
        key = self.reward if path.startswith(_OF_PROJECT) else self.write
        return self.client.get(path, **{"headers": key, **options})

    def at(self, minutes: float) -> str:
        """The time so many minutes after its beginning, as a request has it."""
        return (self.begin + timedelta(minutes=minutes)).isoformat()

    # --- Deploys and traffic ----------------------------------------------------------------

    def deploy(
        self,
        sha: str,
        allocation: float | None = None,
        *,
        minutes: float | None = None,
        base: str | None = None,
        **members: Any,
    ) -> dict[str, Any]:
        """Posts a deploy, now or so many minutes after its beginning, and returns its record."""
        body: dict[str, Any] = {**members, "commit": {"sha": sha, **members.get("commit", {})}}
        if allocation is not None:
            body["allocation"] = allocation
        if minutes is not None:
            body["deployed_at"] = self.at(minutes)
        if base is not None:
            body["diff"] = {"base_commit": base, "files": []}
        answer = self.post("/v1/deploys", body)
        assert answer.status_code == 201, answer.text
        return answer.json()["deploy"]

    def canary(self, share: float | None = 0.5) -> dict[str, Any]:
        """Posts A a day before its beginning, and K on it at its beginning; returns K's record."""
        self.deploy(A, minutes=-DAY)
        return self.deploy(K, share, minutes=0, base=A)

    def withdraw(self, deploy: dict[str, Any]) -> Any:
        return self.client.delete(f"/v1/deploys/{deploy['deploy_id']}", headers=self.write)

    def units_of(
        self, commit: str, *, minutes: float, units: int, converting: int = 0, **members: Any
    ) -> list[str]:
        """Sessions that a commit served, the first ones of which convert a minute later."""
        sessions = self.new_sessions(units)
        for i, session in enumerate(sessions):
            event = {"session_id": session, "commit": commit, **members}
            self.events.append({**event, "event": "page_view", "occurred_at": self.at(minutes)})
            if i < converting:
                self.events.append({**event, "event": "order", "occurred_at": self.at(minutes + 1)})
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
        sessions = self.new_sessions(units)
        for i, session in enumerate(sessions):
            when = start + minutes * (i + 0.5) / units
            visit = {"session_id": session, "commit": commit, **members}
            self.events.append({**visit, "event": "page_view", "occurred_at": self.at(when)})
            for number, (event, rate) in enumerate((rates or {}).items()):
                place = (i * 7919 ** (number + 1)) % units if units % 7919 else i
                if int((place + 1) * rate) > int(place * rate):
                    later = when if event == "error" else when + 1
                    self.events.append({**visit, "event": event, "occurred_at": self.at(later)})
        return sessions

    def new_sessions(self, units: int) -> list[str]:
        """Ids of sessions that no event has named yet."""
        self.units += units
        return [f"s{number}" for number in range(self.units - units, self.units)]

    def send(self, *, live: bool = False) -> None:
        """Sends the events that wait, as history; or so that each came live when it occurred."""
        for begin in range(0, len(self.events), _BATCH):
            batch = self.events[begin : begin + _BATCH]
            answer = self.post("/v1/events?replay=true", {"events": batch})
            assert answer.status_code == 202, answer.text
            assert answer.json()["accepted"] == len(batch)
        self.events = []
        if live:
            self.in_store(lambda connection: connection.execute(text("DELETE FROM histories")))

    def goes_on(self) -> None:
        """Lets what was sent since the newest deploy have come live: its canary is still served."""
        self.in_store(lambda connection: connection.execute(GOES_ON))

    # --- Experiments and verdicts -----------------------------------------------------------

    def register(self, **members: Any) -> str:
        answer = self.post("/v1/reward/register", {**self.registration, **members})
        assert answer.status_code == 201, answer.text
        return answer.json()["experiment_id"]

    def as_live(self) -> None:
        """Lets each experiment be as if it had been registered when its exposure began."""
        self.freeze()
        self.in_store(lambda connection: connection.execute(AS_LIVE))

    def freeze(self) -> None:
        """Freezes the policies of what was registered, as the next run of the pipeline does."""
        self.in_store(freeze_registered)

    def tick(self, *, minutes: float | None = None) -> None:
        """Runs the pipeline once, now or as of so many minutes after its beginning."""
        as_of = None if minutes is None else self.begin + timedelta(minutes=minutes)
        run_pipeline(self.store.engine, as_of=as_of)

    def publish(
        self,
        experiment_id: str,
        answer: dict[str, Any],
        *,
        next_look_at: datetime | None = None,
        **document: Any,
    ) -> None:
        """Publishes a contract and the evidence document of a test's choice, as a tick does."""
        self.in_store(
            lambda connection: publish(
                connection, experiment_id, answer, document, next_look_at=next_look_at
            )
        )

    def judged(self, *, minutes: float | None = None, **members: Any) -> str:
        """Sends what waits, registers K or what members name, ticks, and returns the id."""
        self.send()
        experiment = self.register(**{"treatment_commit": K, **members})
        self.tick(minutes=minutes)
        return experiment

    def answer(
        self, experiment_id: str, *, minutes: float | None = None
    ) -> tuple[str, str | None, bool]:
        """The verdict after a tick, its reason to abstain, and whether it is decided."""
        self.tick(minutes=minutes)
        contract = self.contract(experiment_id)
        return contract["verdict"], contract["abstain_reason"], contract["power_state"]["decided"]

    def contract(self, experiment_id: str) -> dict[str, Any]:
        return self._read(f"/v1/reward/{experiment_id}").json()

    def evidence(self, experiment_id: str) -> dict[str, Any]:
        """The evidence document; each that a test reads is what its structs write."""
        answer = self._read(f"/v1/reward/{experiment_id}/evidence")
        assert document_text(evidence_of(answer.content)) == answer.text
        return answer.json()

    def decoded(self, experiment_id: str) -> Evidence:
        """The same evidence as a face reads it."""
        evidence = evidence_of(document_text(self.evidence(experiment_id)))
        assert isinstance(evidence, Evidence)
        return evidence

    def policy(self, experiment_id: str) -> dict[str, Any]:
        """The policy, frozen by now."""
        self.freeze()
        read = text("SELECT policy FROM experiments WHERE experiment_id = :id")
        return self.in_store(lambda c: c.execute(read, {"id": experiment_id}).scalar_one())

    def bound(self, experiment_id: str) -> dict[str, Any]:
        """The registration as it is bound to deploys, its policy frozen."""
        self.freeze()
        return self._read(f"/v1/reward/{experiment_id}/registration").json()

    def listed(self) -> list[dict[str, Any]]:
        return self._read("/v1/reward").json()["experiments"]

    def require_the_counts_to_add_up(self) -> None:
        """Holds that no unit is counted twice or missed.

        That a recomputation gives the same rows is held of random worlds
        (`tests/pipeline/engines/`).
        """
        with self.store.engine.connect() as connection:
            assert units_that_do_not_add_up(connection) == []
            assert lost_sessions(connection) == {}

    def _read(self, path: str) -> Any:
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return answer

    def cells(self, experiment_id: str) -> list[Cell]:
        """(minutes after T, stratum, n1, x1, n0, x0) of the cells of `order`."""
        cells = text(
            "SELECT block, stratum, n1, x1, n0, x0 FROM cells_in_words"
            " WHERE experiment_id = :id AND metric = 'order' ORDER BY block, stratum"
        )
        rows = self.in_store(lambda c: c.execute(cells, {"id": experiment_id}).all())
        return [
            (int((row.block - T).total_seconds() // 60), row.stratum, *tuple(row)[2:])
            for row in rows
        ]
