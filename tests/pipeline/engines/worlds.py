"""Random worlds: deploys, experiments and some hours of a log, with everything that goes wrong."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec
from sqlalchemy import Connection, text

from domain.lineage.flag import Flag
from domain.registration import PRODUCTION, Registration
from storage.experiments.experiments import register
from storage.log.events import note_history
from storage.schema.partitions import create_days
from storage.tenants.projects import create_project
from storage.tenants.setting_changes import apply_settings
from tests.stores.pipeline_run import freeze_registered
from tests.world import record_deploy

T = datetime(2026, 10, 1, 20, 0, tzinfo=UTC)
HOURS = 8
A, B, K_ON_B, UNKNOWN, LATER = (f"{letter}" * 7 for letter in "adef9")
K = "b" * 40
# K's beginning means two commits once this id is recorded, B's another commit once more of B is.
TWIN = f"{K[:9]}{'c' * 31}"
B_WHOLE = f"{B}{'1' * 33}"
COMMITS = (
    *(A, K, B, K_ON_B, UNKNOWN, LATER),
    *(K[:7], K[:9], K[:12], f"{A}{'0' * 33}", TWIN, B_WHOLE, B_WHOLE[:9], f"{B}{'2' * 33}"),
)
ROUTES = ("/list", "/item/7", "/item/[id]", "/about", "/nowhere", None)
GRAPH = {
    "schema_version": 1,
    "routes": [{"path": path, "files": ["a.ts"]} for path in ("/list", "/item/[id]", "/about")],
}
FLAGS = ("cart", "search")
FLAG_VALUES = (
    None,
    True,
    True,
    " True",
    False,
    "FALSE ",
    "blue",
    "\tblue ",
    "Blue",
    "green",
    "None",
)
METRICS = {
    "order": {"window_seconds": 3600, "grace_seconds": 3000},
    "basket": {"window_seconds": 1800, "kind": "mean", "sources": ["basket", "order"]},
    "spend": {"window_seconds": 7200, "kind": "mean", "sources": ["paid"], "currency": "USD"},
    "takings": {
        "window_seconds": 3600,
        "kind": "mean",
        "sources": ["paid"],
        "currency": "USD",
        "rates": {"EUR": 1.08234567, "JPY": 0.0067, "KWD": 3.25},
    },
    "paid": {"window_seconds": 5400, "grace_seconds": 1500},
    "return": {"window": {"from": "20m", "to": "1h"}, "sources": ["order", "paid"]},
    "rate": {"window_seconds": 3600, "kind": "ratio", "sources": ["order"], "per": ["page_view"]},
    "dear": {"window_seconds": 3600, "sources": ["basket", "order"], "over": 100_000},
}
TARGETS = tuple(METRICS)
# Guardrails that ask for properties of their events.
ASKING = {
    "apples": {
        "sources": ["order", "paid"],
        "kind": "mean",
        "currency": "USD",
        "window_seconds": 3600,
        "where": {"plan": ["7", "true"], "platform": ["android", "ios"]},
    },
    "apple": {"sources": ["order", "paid"], "where": {"x": ["1", "2", "a=b"]}},
    "share": {
        "sources": ["basket", "paid"],
        "kind": "ratio",
        "per": ["basket", "order", "paid"],
        "where": {"x": ["1", "a=b"]},
    },
}
PROPERTIES = (
    None,
    '{"platform": "ios", "x": 1}',
    '{"platform": "android", "plan": 7, "x": 1.5}',
    '{"platform": ["a"], "plan": true, "x": "a=b"}',
    '{"platform": {"a": 1}, "plan": "", "x": "1\\u001fx=2"}',
    '{"platform": null, "plan": "\\u00e9\\"%s"}' % ("long " * 20),
)
# A guardrail of two thresholds, which a short log has no quantiles of.
SLOW = """
UPDATE experiments SET policy = jsonb_set(policy, '{guardrails}', policy -> 'guardrails' || (
    SELECT jsonb_agg((policy -> 'target') - 'per' || jsonb_build_object(
        'name', name, 'of', 'slow', 'over', over, 'kind', 'conversion', 'cap', null,
        'sources', jsonb_build_array('basket', 'order'), 'window_seconds', 1800, 'picked', true
    ))
    FROM (VALUES ('slow', 1000), ('slow p99', 500000)) AS thresholds (name, over)
)) WHERE project_id = :project
"""
# Means of users are adjusted by what came before the canary, and of others it is read who had any:
# all that they do later, hours earlier.
EARLIER = """
INSERT INTO runtime_events
SELECT (jsonb_populate_record(e, jsonb_build_object(
    'occurred_at', e.occurred_at - interval '10 hours',
    'received_at', e.received_at - interval '10 hours',
    'sent_at', e.sent_at - interval '10 hours'))).*
FROM runtime_events AS e WHERE e.project_id = :project
"""
EARLIER_REVENUE = """
INSERT INTO revenue_events
SELECT (jsonb_populate_record(e, jsonb_build_object(
    'idempotency_key', 'earlier ' || e.idempotency_key,
    'occurred_at', e.occurred_at - interval '10 hours',
    'received_at', e.received_at - interval '10 hours'))).*
FROM revenue_events AS e WHERE e.project_id = :project
"""
ADJUSTED = """
UPDATE experiments SET policy = jsonb_set(policy, '{companions}', policy -> 'companions' || (
    SELECT jsonb_agg((policy -> 'target') || added)
    FROM (VALUES
        (jsonb_build_object('name', target_metric || ' before the canary', 'role', 'history',
            'received', jsonb_build_array(
                CAST(:start AS timestamptz) - interval '28 days', CAST(:start AS timestamptz)
            ))),
        (jsonb_build_object('name', 'both', 'role', 'with_history', 'also_of',
            target_metric || ' before the canary',
            'of', policy #>> '{target,name}'))
    ) AS companions (added)
)) WHERE project_id = :project AND policy #>> '{target,kind}' = 'mean'
"""
KNOWN = """
UPDATE experiments SET policy = jsonb_set(policy, '{companions}', policy -> 'companions'
    || jsonb_build_array((policy -> 'target') - 'per' - 'over' - 'where' || jsonb_build_object(
        'name', target_metric || ' before the canary', 'role', 'history', 'kind', 'conversion',
        'cap', null, 'received', jsonb_build_array(
            CAST(:start AS timestamptz) - interval '28 days', CAST(:start AS timestamptz)
))))
WHERE project_id = :project AND policy #>> '{target,kind}' <> 'mean'
"""


@dataclass(frozen=True, kw_only=True)
class World:
    """A project with experiments and a log that has been stored."""

    seed: int
    project_id: int
    experiments: Sequence[str]


def build_world(connection: Connection, seed: int) -> World:
    """Stores a world; the same seed gives the same world but for its ids."""
    draw = Random(seed)
    project_id = create_project(connection, secrets.token_hex(8)).project_id
    unit = draw.choice(["session", "session", "user"])
    unit = "account" if unit == "user" and seed % 2 else unit
    chosen: dict[str, Any] = {
        "unit": unit,
        "metrics": METRICS | ASKING,
        "grace_seconds": draw.choice([0, 60, 120, 600]),
        "trusted_identity": draw.random() < 0.4,
        "segments": draw.choice([[], [], ["platform"], ["platform", "plan"], ["nowhere"]]),
        "sample_rate": draw.choice([1, 1, 0.7]),
        "verified_draws": Random(-seed).random() < 0.6,
        "warmup_minutes": draw.choice([0, 0, 1, 30, 90]),
    }
    if unit == "session" and draw.random() < 0.3:
        chosen["signed_assignments"] = True
    apply_settings(connection, project_id, {"locked": [], **chosen})
    _store_events(connection, project_id, draw, clocks=Random(f"{seed}"))
    _store_revenue(connection, project_id, draw)
    _record_deploys(connection, project_id, draw)
    # Registered after its events, it keeps its past as history does.
    note_history(connection, project_id, [(PRODUCTION, T + timedelta(hours=HOURS))])
    experiments = _register(connection, project_id, draw, verified=chosen["verified_draws"])
    freeze_registered(connection)
    connection.execute(text(SLOW), {"project": project_id})
    if unit != "session":
        connection.execute(text(EARLIER), {"project": project_id})
        connection.execute(text(EARLIER_REVENUE), {"project": project_id})
        for read in (ADJUSTED, KNOWN):
            connection.execute(text(read), {"project": project_id, "start": T})
    _move_knowledge(connection, project_id, draw)
    return World(seed=seed, project_id=project_id, experiments=experiments)


def _store_events(connection: Connection, project_id: int, draw: Random, *, clocks: Random) -> None:
    rows: list[dict[str, Any]] = []
    for number in range(draw.randint(20, 60)):
        begins = draw.uniform(-3000, HOURS * 3000)
        commit = draw.choice(COMMITS[:4] * 4 + COMMITS)
        route = draw.choice(ROUTES[:3] * 3 + ROUTES)
        flags = _flags(draw)
        others = draw.choice([[0], [0], [0, 1]])
        # By how much its sender's clock is behind; None where none of its requests is dated.
        behind = clocks.choice([None, None, 0, 0, 7, 90, 119, 5000, -30, -4000])
        for _ in range(draw.randint(1, 5)):
            if draw.random() < 0.15:
                commit, flags = draw.choice(COMMITS), _flags(draw)
            if draw.random() < 0.3:
                route = draw.choice(ROUTES)
            # Whole seconds, so that events of a moment are no accident.
            occurred = T + timedelta(seconds=round(begins + draw.choice([0, 0, 30, 900, 4000])))
            row = {
                "project_id": project_id,
                "environment": draw.choice(["production"] * 9 + ["staging"]),
                "event": draw.choice(["page_view", "page_view", "order", "basket", "paid"]),
                "session_id": f"s{number}",
                "occurred_at": occurred,
                "commit_sha": draw.choice([*[commit] * 6, None, "0" * 40]),
                "route": route,
                # Of a user as a rule, and of some sessions two by turns.
                "pseudonym": draw.choice(
                    [bytes([number % 17]), None, bytes([(number + draw.choice(others)) % 17])]
                ),
                "trusted": draw.random() < 0.4,
                "signed": draw.random() < 0.5,
                "event_id": draw.choice([None, None, f"e{draw.randrange(40)}"]),
                "value": draw.choice([None, draw.randrange(-(10**9), 10**12), 10**15, -(10**15)]),
                "flags": flags,
                "properties": draw.choice(PROPERTIES),
            }
            for _ in range(1 + (draw.random() < 0.2)):
                delay = draw.choice([0, 0, 0, 20.5, 200, 650, 4000, -100])
                received = occurred + timedelta(seconds=delay)
                rows.append({**row, "received_at": received, "sent_at": None})
                if behind is not None and clocks.random() < 0.8:
                    slow = clocks.choice([0.2, 0.2, 3, 22, 70]) if delay > 0 else 0.2
                    rows[-1]["sent_at"] = received - timedelta(seconds=behind + slow)
                    rows[-1]["occurred_at"] = occurred - timedelta(seconds=behind)
    create_days(connection, {row["received_at"].date() for row in rows})
    names = list(rows[0])
    values = ", ".join(
        f"CAST(:{name} AS jsonb)" if name in ("flags", "properties") else f":{name}"
        for name in names
    )
    connection.execute(
        text(f"INSERT INTO runtime_events ({', '.join(names)}) VALUES ({values})"), rows
    )


def _flags(draw: Random) -> str | None:
    served = {name: value for name in FLAGS if (value := draw.choice(FLAG_VALUES)) is not None}
    named = {**served, **({"untested": "x"} if draw.random() < 0.2 else {})}
    return msgspec.json.encode(named).decode() if named and draw.random() < 0.9 else None


def _store_revenue(connection: Connection, project_id: int, draw: Random) -> None:
    rows = [
        {
            "project_id": project_id,
            "key": f"k{number}",
            "occurred": (at := T + timedelta(seconds=round(draw.uniform(-1000, HOURS * 3600)))),
            "received": at + timedelta(seconds=draw.choice([0, 0, 60, 9000])),
            "amount": draw.choice([None, 1900, -500, 2 * 10**11, 2**63 - 1]),
            "currency": draw.choice(["USD", "USD", "EUR", "JPY", "KWD", "CHF"]),
            "pseudonym": bytes([user]) if (user := draw.randrange(18)) < 17 else None,
            "session": draw.choice([None, None, f"s{draw.randrange(60)}"]),
            "environment": draw.choice([None, "production", "staging"]),
            "attributes": PROPERTIES[number % len(PROPERTIES)],
        }
        for number in range(draw.randint(5, 40))
    ]
    connection.execute(
        text(
            "INSERT INTO revenue_events (project_id, idempotency_key, event, occurred_at,"
            " received_at, amount_value, amount_currency, pseudonym, session_id, environment,"
            " attributes, digest) VALUES (:project_id, :key, 'paid', :occurred, :received, :amount,"
            " :currency, :pseudonym, :session, :environment, CAST(:attributes AS jsonb), '')"
        ),
        rows,
    )


def _record_deploys(connection: Connection, project_id: int, draw: Random) -> None:
    for sha, minutes, base, changes in (
        (A, -1440, None, []),
        (K, 0, A, []),
        (B, 40, A, []),
        (K_ON_B, 50, B, [K]),
        (LATER, 60, A, []),
        (TWIN, 61, A, []),
        (B_WHOLE, 62, f"{A}{'0' * 20}", []),
    ):
        at = T + timedelta(minutes=minutes if sha == A else minutes + draw.choice([0, 3]))
        record_deploy(
            connection,
            project_id,
            sha,
            at,
            None if base is None else draw.choice([0.5, 0.1]),
            base=base,
            changes=changes,
            graph=GRAPH if sha == A else None,
        )


def _register(
    connection: Connection, project_id: int, draw: Random, *, verified: bool
) -> list[str]:
    targets = draw.sample(TARGETS, 2)
    routes = draw.choice([None, ["/list"], ["/list", "/item/[id]"]])
    canaries = [
        Registration(
            treatment_commit=K,
            target_metric=target,
            guardrails=[*draw.sample([name for name in TARGETS if name != target], 2), *ASKING],
            routes=routes,
        )
        for target in targets
    ]
    flags = [
        Registration(
            treatment_flag=Flag(
                name=name,
                **draw.choice(
                    [
                        {"treatment": "true"},
                        # A draw that is verified gives both values.
                        {"treatment": "blue", "control": "true" if verified else None},
                        {"treatment": "blue", "control": "green"},
                    ]
                ),
            ),
            target_metric=draw.choice(TARGETS),
            guardrails=[],
        )
        for name in FLAGS
        if draw.random() < 0.4
    ]
    return [register(connection, project_id, asked).experiment_id for asked in (*canaries, *flags)]


_RECORDED = """
UPDATE commits
SET recorded_at = :at,
    base_recorded_at = CASE WHEN base IS NOT NULL THEN :at + interval '{after}' END
WHERE project_id = :project AND commit_sha {which}
"""


LATE_STARTS = """
UPDATE experiments SET declared_at = starts_at, starts_at = starts_at + interval '20 minutes'
WHERE project_id = :project
"""
_WRITTEN = "UPDATE commit_ids SET recorded_at = :at WHERE project_id = :project AND id {which}"


def _move_knowledge(connection: Connection, project_id: int, draw: Random) -> None:
    """Puts bindings, recordings and horizons into the hours of the log."""
    moved = {"project": project_id, "start": T}
    for statement, minutes in (
        ("UPDATE experiments SET bound_at = :at WHERE project_id = :project", 20),
        # Some start with a late registration.
        (LATE_STARTS if draw.random() < 0.3 else LATE_STARTS + " AND false", 0),
        (
            _RECORDED.format(after="37 minutes", which=f"IN ('{LATER}', '{TWIN}')"),
            (later := draw.choice([90, 150])),
        ),
        (_RECORDED.format(after="11 seconds", which=f"NOT IN ('{LATER}', '{TWIN}')"), 0),
        (_WRITTEN.format(which=f"IN ('{LATER}', '{TWIN}', '{B_WHOLE}')"), later),
        (_WRITTEN.format(which=f"NOT IN ('{LATER}', '{TWIN}', '{B_WHOLE}')"), 0),
        (
            "UPDATE deploys SET recorded_at = :at WHERE project_id = :project",
            draw.choice([10, 45, 75]),
        ),
    ):
        at = T + timedelta(minutes=minutes)
        named = {**moved, "at": at}
        connection.execute(
            text(statement), {name: v for name, v in named.items() if f":{name}" in statement}
        )
    # Some end within the hours of the log.
    connection.execute(
        text(
            "UPDATE experiments SET policy = policy || jsonb_build_object('horizon_seconds',"
            " CAST(:seconds AS integer)) WHERE project_id = :project"
        ),
        {"project": project_id, "seconds": draw.choice([14_400, 14_500, 2_419_200])},
    )
    connection.execute(
        text(
            "UPDATE experiments SET bound_at = bound_at + interval '55 minutes'"
            " WHERE project_id = :project AND policy ->> 'flag' IS NOT NULL"
            " AND policy -> 'flag' ->> 'name' = 'search'"
        ),
        {"project": project_id},
    )
