"""Isolation: what an experiment's data breaks is set aside by name; every other goes on."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from dagster import AssetCheckResult, build_init_resource_context
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from orchestration.dagster import checks
from orchestration.dagster.resources import Store
from orchestration.pipeline.batch import Patience, compute
from orchestration.pipeline.day_check import compare_days
from orchestration.pipeline.steps import expose
from orchestration.pipeline.whole_days import LakeDays
from storage.lake.comparison import compare_files
from storage.lake.hot_days import move_old_days
from storage.lake.lake import open_lake
from storage.lake.scrubbing import scrub
from storage.lake.sealing import Sealer
from storage.schema.clock import claim_derived_tables, closed_instant
from storage.upkeep.forgetting import forget_person
from storage.upkeep.gauges import read_gauges
from storage.upkeep.reading import separate_reading
from storage.verdicts.backlog import due_work
from storage.views.published import read_set_aside
from tests.clients.owner import Owner
from tests.repetition import also_nightly
from tests.stores.pipeline_run import run_pipeline
from tests.stores.wrong_files import HARMS
from tests.world import World

CONTROL, TREATMENT = "aaaaaaa1", "ccccccc3"
UNITS = 120


# So long ago that all traffic has closed, and no experiment is over.
DAY = datetime.now(UTC).date() - timedelta(days=2)
OVER = """UPDATE experiments SET policy = policy || '{"horizon_seconds": 86400}'"""


def at(minutes: float, day: date = DAY) -> str:
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return (midnight + timedelta(minutes=minutes)).isoformat()


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """Two projects with a canary each, whose traffic has closed, and nothing is computed yet."""

    guilty: World
    guilty_experiment: str
    clean: World
    clean_experiment: str

    def sql(self, statement: str, **values: Any) -> Any:
        values = {"id": self.guilty_experiment, **values}
        asked = {name: value for name, value in values.items() if f":{name}" in statement}
        return self.guilty.in_store(lambda c: c.execute(text(statement), asked))

    def break_by(self, statement: str) -> None:
        """Runs a statement whose trigger, if it makes any, knows whom it is meant for."""
        engine = self.guilty.store.engine
        database = engine.url.database
        self.sql(f"ALTER DATABASE {database} SET tests.guilty = '{self.guilty_experiment}'")
        engine.dispose()
        self.sql(statement)

    def tick(self) -> None:
        run_pipeline(self.guilty.store.engine)

    def set_aside(self) -> dict[str, str]:
        with self.guilty.store.engine.connect() as connection:
            return {each.experiment_id: each.stage for each in read_set_aside(connection)}

    def retry_is_due(self) -> None:
        self.sql("UPDATE set_aside SET last_tried_at = last_tried_at - interval '2 hours'")


def decided(service: World, experiment: str) -> str | None:
    contract = service.get(f"/v1/reward/{experiment}").json()
    return contract["verdict"] if contract["power_state"]["decided"] else None


def canary(service: World, *, target: str) -> str:
    post_traffic(service, DAY)
    return register(service, target=target)


def post_traffic(service: World, day: date) -> None:
    """Posts a canary that is plainly better in orders and in what they are worth."""
    graph = {"schema_version": 1, "routes": [{"path": "/cart/[id]", "files": ["app/cart.tsx"]}]}
    diff = {"base_commit": CONTROL, "files": [{"filename": "app/cart.tsx", "status": "modified"}]}
    for sha, minutes, more in ((CONTROL, -1440, {"graph": graph}), (TREATMENT, 0, {"diff": diff})):
        body = {"commit": {"sha": sha}, "deployed_at": at(minutes, day), **more}
        assert service.post("/v1/deploys", body).status_code == 201
    events: list[dict[str, Any]] = []
    for number in range(2 * UNITS):
        commit = (CONTROL, TREATMENT)[number % 2]
        seen = {"session_id": f"s{number}", "commit": commit, "route": "/cart/7"}
        minutes = 1 + 300 * number / (2 * UNITS)
        events.append({**seen, "event": "page_view", "occurred_at": at(minutes, day)})
        if number % 20 in ((0, 2), (1, 3, 5, 7, 9, 11, 13))[number % 2]:
            order = {**seen, "event": "order", "value": 10 + number % 7}
            events.append({**order, "occurred_at": at(minutes + 1, day)})
    for begin in range(0, len(events), 500):
        batch = {"events": events[begin : begin + 500]}
        assert service.post("/v1/events?replay=true", batch).json()["rejected"] == []


def register(service: World, *, target: str) -> str:
    service.settings(locked=[])
    registered = service.post(
        "/v1/reward/register",
        {
            "target_metric": target,
            "guardrails": [],
            "treatment_commit": TREATMENT,
            "routes": ["/cart/[id]"],
        },
    )
    assert registered.status_code == 201, registered.text
    return registered.json()["experiment_id"]


@pytest.fixture
def unfrozen(service) -> Neighbours:
    other = World(store=service.store, client=service.client, project=service.new_project("b"))
    service.settings(metrics={"worth": {"kind": "mean", "sources": ["order"]}})
    guilty, clean = canary(service, target="worth"), canary(other, target="order")
    return Neighbours(guilty=service, guilty_experiment=guilty, clean=other, clean_experiment=clean)


@pytest.fixture
def neighbours(unfrozen) -> Neighbours:
    unfrozen.guilty.freeze()
    return unfrozen


@pytest.fixture
def in_lake(service, tmp_path, monkeypatch) -> Neighbours:
    """The same, three days apart, of which the lake alone holds the events."""
    monkeypatch.setenv("SERVICE_LAKE", str(tmp_path / "lake"))
    other = World(store=service.store, client=service.client, project=service.new_project("b"))
    post_traffic(service, DAY - timedelta(days=3))
    post_traffic(other, DAY)
    lake, engine = open_lake(), service.store.engine
    assert Sealer(engine=engine, lake=lake).seal()
    with engine.begin() as connection:
        assert compare_files(connection, lake).different == []
        # As a day later: what was written into lately stays.
        connection.execute(text("DELETE FROM replayed_days"))
    assert len(move_old_days(engine, lake, as_of=datetime.now(UTC), hot_days=1).moved) == 2
    return Neighbours(
        guilty=service,
        guilty_experiment=register(service, target="order"),
        clean=other,
        clean_experiment=register(other, target="order"),
    )


def raising(table: str) -> str:
    """A store in which no row of the experiment can be written to a table."""
    return f"""
        CREATE FUNCTION unreadable() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF NEW.experiment_id = current_setting('tests.guilty') THEN
                RAISE EXCEPTION 'a secret value' USING ERRCODE = 'data_exception';
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER unreadable BEFORE INSERT OR UPDATE ON {table}
            FOR EACH ROW EXECUTE FUNCTION unreadable();
    """


HEAL = "DROP FUNCTION unreadable CASCADE"
LATER = """
UPDATE experiments SET policy = policy - 'grace_seconds' || '{"version": 2, "grace": "2 min"}'
WHERE experiment_id = :id
"""
EARLIER = """
UPDATE experiments SET policy = policy - 'grace' || '{"version": 1, "grace_seconds": 120}'
WHERE experiment_id = :id
"""
NO_NUMBER = """
UPDATE experiments SET policy = policy || '{"grace_seconds": "two minutes"}'
WHERE experiment_id = :id
"""
NO_GRAPH = """
UPDATE graphs SET document = '{"routes": 5}'
WHERE project_id = (SELECT project_id FROM experiments WHERE experiment_id = :id)
"""
GRAPH = NO_GRAPH.replace("5}", '[{"path": "/cart/[id]"}]}')

# What is broken, the stage that it breaks, and what a release that can read it again restores.
WAYS = {
    "exposures that cannot be written": (raising("exposures"), "exposures", HEAL),
    # Who is hours behind is computed whole in the first stage, cells included.
    "cells that cannot be written": (raising("cells"), "exposures", HEAL),
    "evidence that cannot be staged": (raising("evidence"), "evidence", HEAL),
    "a verdict that cannot be published": (raising("verdicts"), "verdicts", HEAL),
    "a policy of a later version": (LATER, "exposures", EARLIER),
    "a policy that is broken": (NO_NUMBER, "exposures", EARLIER),
    "a graph that is no graph": (NO_GRAPH, "exposures", GRAPH),
}


# A row of each kind with the other tests: the rest says the same of the same code.
_QUICK = ("cells that cannot be written", "a policy of a later version")
_WAYS = [way if way in _QUICK else pytest.param(way, marks=pytest.mark.deep) for way in WAYS]


@pytest.mark.parametrize("way", _WAYS)
def test_what_one_experiment_breaks_keeps_no_other_from_its_verdict_of_the_same_tick(
    neighbours, way
) -> None:
    breaking, stage, healing = WAYS[way]
    neighbours.break_by(breaking)
    neighbours.tick()
    assert decided(neighbours.clean, neighbours.clean_experiment) == "keep"
    assert decided(neighbours.guilty, neighbours.guilty_experiment) is None
    assert neighbours.set_aside() == {neighbours.guilty_experiment: stage}
    # A release that can read it computes it as if nothing had been.
    neighbours.sql(healing)
    neighbours.retry_is_due()
    neighbours.tick()
    assert neighbours.set_aside() == {}
    assert decided(neighbours.guilty, neighbours.guilty_experiment) == "keep"


def bound(member: str, value: str) -> str:
    """An experiment whose binding has another value, and can have its own again."""
    return f"""
        UPDATE experiments SET binding = binding || CAST('{{"{member}": {value}}}' AS jsonb)
            || jsonb_build_object('own', binding -> '{member}')
        WHERE experiment_id = :id
    """


def unbound(member: str) -> str:
    return f"""
        UPDATE experiments SET binding = binding || jsonb_build_object('{member}', binding -> 'own')
        WHERE experiment_id = :id
    """


NO_ROUTES = """
WITH named AS (UPDATE experiments SET request = request - 'routes' WHERE experiment_id = :id)
"""
# What keeps a policy from being frozen, and what cures it.
UNFREEZABLE = {
    "a binding that cannot be read": (bound("attempt", '"first"'), unbound("attempt")),
    "settings that cannot be read": (bound("settings", '{"metrics": 5}'), unbound("settings")),
    "an answer that cannot be read": (
        """UPDATE experiments SET answers = '{"answers": 5}' WHERE experiment_id = :id""",
        "UPDATE experiments SET answers = NULL WHERE experiment_id = :id",
    ),
    "a reading that fails": (bound("began_at", '"0001-01-01T00:00:00Z"'), unbound("began_at")),
    "a graph that cannot be decoded": (NO_ROUTES + NO_GRAPH, GRAPH),
    "a policy that cannot be written": (raising("experiments"), HEAL),
}


@pytest.mark.parametrize("way", UNFREEZABLE)
def test_an_experiment_that_cannot_be_frozen_is_set_aside_by_name_and_stops_no_other(
    unfrozen, way
) -> None:
    breaking, healing = UNFREEZABLE[way]
    guilty, name = unfrozen.guilty, unfrozen.guilty_experiment
    beside = register(guilty, target="order")
    unfrozen.break_by(breaking)
    unfrozen.tick()
    assert decided(unfrozen.clean, unfrozen.clean_experiment) == "keep"
    assert unfrozen.set_aside()[name] == "experiments"
    assert guilty.get(f"/v1/reward/{beside}/registration").json()["frozen_at"] is not None
    assert named_by_faces(unfrozen, "The policy of this experiment cannot be computed since")
    assert guilty.get(f"/v1/reward/{name}/registration").status_code == 200
    # It is tried again by a time of its own, and launches no run before.
    unfrozen.sql("DELETE FROM set_aside WHERE experiment_id <> :id")
    with guilty.store.engine.connect() as connection:
        due = due_work(connection, as_of=closed_instant(connection))
    assert "registered" not in {reason for work in due for reason in work.reasons}
    unfrozen.sql(healing)
    unfrozen.retry_is_due()
    unfrozen.tick()
    assert unfrozen.set_aside() == {}
    assert decided(guilty, name) == "keep"


def named_by_faces(neighbours: Neighbours, sentence: str) -> bool:
    """Holds that checklist, pages and gauge name the experiment that is set aside."""
    guilty, name = neighbours.guilty, neighbours.guilty_experiment
    lines = guilty.get("/v1/reward/checklist").json()
    seen = [line["seen"] for line in lines if line["check"] == "experiment computed"]
    owner = Owner(guilty)
    pages = [owner.page(path) for path in ("/dashboard", f"/dashboard/experiments/{name}")]
    metrics = guilty.client.get("/metrics").text
    aside = re.search(r"\ndeploy_reward_experiments_set_aside (.+)\n", metrics)
    return (
        any(each.startswith(f"{name}: {sentence}") for each in seen)
        and all(sentence in page for page in pages)
        and aside is not None
        and float(aside[1]) == len(neighbours.set_aside())
    )


def test_closing_decides_an_experiment_that_cannot_be_frozen(unfrozen) -> None:
    guilty, name = unfrozen.guilty, unfrozen.guilty_experiment
    unfrozen.break_by(UNFREEZABLE["a binding that cannot be read"][0])
    unfrozen.tick()
    assert guilty.post(f"/v1/reward/{name}/close", {}).status_code == 200
    unfrozen.tick()
    assert guilty.get(f"/v1/reward/{name}").json()["power_state"]["decided"]
    assert "closed by hand" in guilty.get(f"/v1/reward/{name}/evidence").json()["sentence"]
    unfrozen.tick()
    assert unfrozen.set_aside() == {}


# Where the row itself of evidence or verdict cannot be written, only a release cures it.
_UNWRITABLE = ("evidence that cannot be staged", "a verdict that cannot be published")
_CLOSED = [
    "a policy that is broken",
    *(
        pytest.param(way, marks=pytest.mark.deep)
        for way in WAYS
        if way not in (*_UNWRITABLE, "a policy that is broken")
    ),
]


@pytest.mark.parametrize("way", _CLOSED)
def test_closing_decides_an_experiment_whose_data_cannot_be_computed(neighbours, way) -> None:
    neighbours.break_by(WAYS[way][0])
    neighbours.tick()
    closed = neighbours.guilty.post(f"/v1/reward/{neighbours.guilty_experiment}/close", {})
    assert closed.status_code == 200
    neighbours.tick()
    contract = neighbours.guilty.get(f"/v1/reward/{neighbours.guilty_experiment}").json()
    assert contract["power_state"] == {"clock": "decided", "decided": True}
    assert (contract["verdict"], contract["abstain_reason"]) == ("abstain", "power")
    evidence = neighbours.guilty.get(f"/v1/reward/{neighbours.guilty_experiment}/evidence").json()
    assert "closed by hand" in evidence["sentence"]
    assert evidence["ended_because"] == "closed"
    assert neighbours.set_aside() == {}


ONE_SESSION = f"""
    {raising("exposures")}
""".replace(
    "NEW.experiment_id = current_setting('tests.guilty')",
    "NEW.unit = 's3' AND NEW.experiment_id = current_setting('tests.guilty')",
)


def test_forgetting_the_session_that_broke_it_cures_an_experiment_at_the_next_tick(
    neighbours,
) -> None:
    neighbours.break_by(ONE_SESSION)
    neighbours.tick()
    assert neighbours.set_aside() == {neighbours.guilty_experiment: "exposures"}
    project_id = neighbours.guilty.project_id
    neighbours.guilty.in_store(lambda c: forget_person(c, project_id, "s3"))
    neighbours.tick()
    assert neighbours.set_aside() == {}
    assert decided(neighbours.guilty, neighbours.guilty_experiment) == "keep"


def test_an_experiment_that_is_set_aside_is_named_wherever_a_person_looks(neighbours) -> None:
    neighbours.break_by(raising("cells"))
    neighbours.tick()
    guilty, name = neighbours.guilty, neighbours.guilty_experiment
    red = [line for line in guilty.get("/v1/reward/checklist").json() if line["ok"] is False]
    (line,) = (line for line in red if line["check"] == "experiment computed")
    assert line["seen"].startswith(f"{name}: The exposures of this experiment cannot be ")
    assert f"deploy-reward close {name}" in line["fix"]
    others = neighbours.clean.get("/v1/reward/checklist").json()
    assert "experiment computed" not in [line["check"] for line in others]
    owner = Owner(guilty)
    for page in ("/dashboard", f"/dashboard/experiments/{name}"):
        assert "The exposures of this experiment cannot be computed since" in owner.page(page)
    metrics = guilty.client.get("/metrics").text
    assert "\ndeploy_reward_experiments_set_aside 1.0\n" in metrics
    store = Store(database_url=guilty.store.url)
    store.setup_for_execution(build_init_resource_context())
    result = checks.no_experiment_is_set_aside(store=store)
    store.teardown_after_execution(build_init_resource_context())
    assert isinstance(result, AssetCheckResult)
    assert not result.passed
    assert name in str(result.metadata["experiments"].value)
    # Where, and what kind of error; no word of what the data said.
    answer = f"{line} {metrics} {result.metadata}"
    assert "InvalidParameterValue" in answer or "DataException" in answer or "DataError" in answer
    assert "storage/pipeline/recompute.py" in answer
    assert "a secret value" not in answer


@pytest.mark.nightly
def test_evidence_that_was_served_stays_and_says_that_nothing_new_can_be_computed(
    neighbours,
) -> None:
    # So that the traffic decides nothing, and the horizon has not come.
    open_still = '{"alpha": 1e-290, "horizon_seconds": 31104000}'
    neighbours.sql(
        "UPDATE experiments SET policy = policy || CAST(:more AS jsonb)", more=open_still
    )
    neighbours.tick()
    name = neighbours.guilty_experiment
    before = neighbours.guilty.get(f"/v1/reward/{name}/evidence").json()
    contract = neighbours.guilty.get(f"/v1/reward/{name}").text
    assert before["totals"]["W"] > 0
    neighbours.break_by(LATER)
    neighbours.sql("UPDATE cursors SET at = at - interval '5 minutes' WHERE stage = 'exposures'")
    neighbours.tick()
    after = neighbours.guilty.get(f"/v1/reward/{name}/evidence").json()
    assert after == {**before, "warnings": [*before["warnings"], "set_aside"]}
    assert neighbours.guilty.get(f"/v1/reward/{name}").text == contract
    owner = Owner(neighbours.guilty)
    assert "you see the last verdict" in owner.page(f"/dashboard/experiments/{name}")
    neighbours.sql(EARLIER)
    neighbours.retry_is_due()
    neighbours.tick()
    again = neighbours.guilty.get(f"/v1/reward/{name}/evidence").json()
    assert "set_aside" not in again["warnings"]


@pytest.mark.parametrize(
    "how", also_nightly(["other rows"], [how for how in HARMS if how != "other rows"])
)
def test_a_wrong_file_keeps_no_other_experiment_from_its_verdict_of_the_same_tick(
    in_lake, how, tmp_path
) -> None:
    wrong, other, *_ = sorted((tmp_path / "lake").rglob("*.parquet"))
    right = wrong.read_bytes()
    HARMS[how](wrong, other)
    guilty, name, engine = in_lake.guilty, in_lake.guilty_experiment, in_lake.guilty.store.engine

    in_lake.tick()

    assert decided(in_lake.clean, in_lake.clean_experiment) == "keep"
    assert decided(guilty, name) is None
    assert in_lake.set_aside() == {name: "exposures"}
    with engine.begin() as connection:
        (scrubbed,) = scrub(connection, open_lake())
    assert scrubbed.name.endswith(wrong.name)
    (line,) = (
        line
        for line in guilty.get("/v1/reward/checklist").json()
        if line["check"] == "experiment computed"
    )
    page = Owner(guilty).page(f"/dashboard/experiments/{name}")
    assert all(f"the file {scrubbed.name} of the lake" in said for said in (line["seen"], page))
    assert str(tmp_path) not in f"{line}{page}"
    metrics = guilty.client.get("/metrics").text
    assert "\ndeploy_reward_experiments_set_aside 1.0\n" in metrics
    assert "\ndeploy_reward_lake_wrong_files 1.0\n" in metrics

    wrong.write_bytes(right)
    in_lake.retry_is_due()
    in_lake.tick()

    assert in_lake.set_aside() == {}
    assert decided(guilty, name) == "keep"
    with engine.begin() as connection:
        assert scrub(connection, open_lake()) == []
        assert read_gauges(connection).lake_wrong_files == 0


@pytest.mark.nightly
def test_the_day_is_compared_without_an_experiment_that_is_set_aside(neighbours) -> None:
    neighbours.break_by(raising("cells"))
    neighbours.tick()
    neighbours.sql(LATER)
    with separate_reading(neighbours.guilty.store.engine) as separate:
        result = compare_days(separate, DAY, DAY, as_of=closed_instant(separate))
    assert result.equal
    assert len(result.lives) == 1


@pytest.mark.deep
def test_an_experiment_that_takes_too_long_is_set_aside_by_a_run(neighbours) -> None:
    slow = raising("exposures").replace(
        "RAISE EXCEPTION 'a secret value' USING ERRCODE = 'data_exception'", "PERFORM pg_sleep(60)"
    )
    neighbours.break_by(slow)
    patience = Patience(together=2.0, alone=2.0, retry_all=True)
    with neighbours.guilty.store.engine.begin() as connection:
        claim_derived_tables(connection)
        expose(connection, LakeDays(), patience=patience)
    assert neighbours.set_aside() == {neighbours.guilty_experiment: "exposures"}
    neighbours.tick()
    assert decided(neighbours.clean, neighbours.clean_experiment) == "keep"


def test_an_error_of_the_connection_sets_nobody_aside(neighbours) -> None:
    def lost(_: Sequence[str]) -> None:
        with neighbours.guilty.store.engine.connect() as other:
            other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
        connection.execute(text("SELECT 1"))

    patience = Patience(together=None, alone=1.0, retry_all=True)
    with neighbours.guilty.store.engine.connect() as connection:
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        with pytest.raises(OperationalError):
            compute(connection, "cells", lost, ids=["exp_1", "exp_2"], patience=patience)
    assert neighbours.set_aside() == {}


FLAGS = [f"flag{number:02}" for number in range(12)]
STRATA_OF_FLAGS = """
SELECT count(*) FROM strata JOIN experiments AS x USING (experiment_id)
WHERE x.policy ->> 'flag' IS NOT NULL GROUP BY experiment_id
"""


@pytest.mark.deep
def test_twelve_flags_in_one_build_hold_up_no_other_project_s_tick(service) -> None:
    clean = World(store=service.store, client=service.client, project=service.new_project("b"))
    canary_of_clean = canary(clean, target="order")
    deploy = {"commit": {"sha": CONTROL}, "deployed_at": at(-1440)}
    assert service.post("/v1/deploys", deploy).status_code == 201
    events: list[dict[str, Any]] = []
    for number in range(2 * 2 ** len(FLAGS)):
        flags = {name: bool(number >> place & 1) for place, name in enumerate(FLAGS)}
        seen = {"session_id": f"f{number}", "commit": CONTROL, "flags": flags}
        minutes = 1 + 300 * number / (2 * 2 ** len(FLAGS))
        events.append({**seen, "event": "page_view", "occurred_at": at(minutes)})
    for begin in range(0, len(events), 500):
        batch = {"events": events[begin : begin + 500]}
        assert service.post("/v1/events?replay=true", batch).json()["rejected"] == []
    service.settings(locked=[])
    for name in FLAGS:
        flag = {"treatment_flag": {"name": name, "treatment": True}, "target_metric": "order"}
        answer = service.post("/v1/reward/register", {**flag, "guardrails": []})
        assert answer.status_code == 201, answer.text
    run_pipeline(service.store.engine)
    assert decided(clean, canary_of_clean) == "keep"
    # Each flag is compared within every combination of those that were under test before it.
    with service.store.engine.connect() as connection:
        assert read_set_aside(connection) == []
        strata = connection.execute(text(STRATA_OF_FLAGS)).scalars().all()
    assert sorted(strata) == [2**place for place in range(len(FLAGS))]


@pytest.mark.nightly
def test_a_person_is_forgotten_though_an_experiment_that_was_over_can_no_longer_be_computed(
    neighbours, monkeypatch, tmp_path
) -> None:
    monkeypatch.setenv("SERVICE_LAKE", str(tmp_path))
    neighbours.sql(OVER)
    neighbours.tick()
    assert decided(neighbours.guilty, neighbours.guilty_experiment) == "keep"
    neighbours.sql(NO_GRAPH)
    project_id = neighbours.guilty.project_id
    erased = neighbours.guilty.in_store(lambda c: forget_person(c, project_id, "s3"))
    assert erased.sessions == 1
