"""The columns: the description and type of each column of an asset's table, as a schema."""

from collections.abc import Mapping

import dagster as dg
from sqlalchemy import CheckConstraint, Column, PrimaryKeyConstraint, Table, UniqueConstraint
from sqlalchemy.dialects import postgresql

from orchestration.dagster.keys import (
    DEPLOYS,
    EVIDENCE,
    EXPOSURES,
    REVENUE_EVENTS,
    RUNTIME_EVENTS,
    SEALED_LOG,
    SESSION_CELLS,
    STATIC_GRAPHS,
    VERDICTS,
)
from storage.postgres.engine import SCHEMA
from storage.schema import tables

# The store's table of each asset.
TABLES: Mapping[dg.AssetKey, Table] = {
    RUNTIME_EVENTS: tables.runtime_events,
    REVENUE_EVENTS: tables.revenue_events,
    DEPLOYS: tables.deploys,
    STATIC_GRAPHS: tables.graphs,
    SEALED_LOG: tables.sealed_hours,
    EXPOSURES: tables.exposures,
    SESSION_CELLS: tables.cells,
    EVIDENCE: tables.evidence,
    VERDICTS: tables.verdicts,
}

_PROJECT = "The project whose key sent it."
_EXPERIMENT = "The experiment."
_ENVIRONMENT = "The environment it happened in, as `production`."
_PSEUDONYM = "Who it was, as the project's HMAC of the user reference; the reference is not kept."
_OCCURRED = "When it happened, by the client's clock."
_RECEIVED = "When it came, by the database's clock; what a verdict reads is bounded by this one."
_DIGEST = "SHA-256 of what was sent, by which the same again is told from something else."

DESCRIPTIONS: Mapping[dg.AssetKey, Mapping[str, str]] = {
    RUNTIME_EVENTS: {
        "project_id": _PROJECT,
        "environment": _ENVIRONMENT,
        "event": "What happened: `page_view`, `error` or any name that a metric counts.",
        "session_id": "The session, opaque to us; by default the unit that is randomized.",
        "occurred_at": _OCCURRED,
        "received_at": f"{_RECEIVED} The table is partitioned by its day.",
        "commit_sha": "The build that served the session: what tells its arm.",
        "route": "The route or path that the event is of.",
        "pseudonym": _PSEUDONYM,
        "trusted": "Whether the write key sent it, hence a server of the project.",
        "event_id": "The sender's name for it; another delivery of the same counts once in a sum.",
        "value": "What a metric of kind `mean` sums up.",
        "flags": "What the unit was served behind feature flags.",
        "properties": "Whatever else the sender said; nothing here reads it.",
        "signed": "Whether a router's token vouches for the session's arm.",
        "part": "Of which further part of its hour it is, where history brought it after the hour"
        " was closed; null of all others.",
    },
    REVENUE_EVENTS: {
        "project_id": _PROJECT,
        "idempotency_key": "The sender's name for it: a second delivery is the same row.",
        "event": "What happened: a trial, a subscription, a payment, a refund.",
        "occurred_at": _OCCURRED,
        "received_at": _RECEIVED,
        "amount_value": "How much, in minor units of the currency; negative for a refund.",
        "amount_currency": "The currency, as ISO 4217 names it.",
        "pseudonym": _PSEUDONYM,
        "session_id": "The session it came from, where the sender knew.",
        "environment": "The environment, where the sender said one.",
        "attributes": "Whatever else the sender said; nothing here reads it.",
        "digest": _DIGEST,
    },
    DEPLOYS: {
        "deploy_id": "The deploy.",
        "project_id": _PROJECT,
        "environment": "Where it was deployed.",
        "commit_sha": "The commit that was put before users.",
        "commit": "What was said of the commit, as it came.",
        "base_commit": "The commit that the diff is against: what users had before.",
        "base_assumed": "Whether no base was named, so that the newest deploy was taken.",
        "deployed_at": "When it went out, by the sender's clock.",
        "recorded_at": "When we were told, by the database's clock.",
        "graph_id": "The static graph that came with it or stood then.",
        "diff": "Which files changed, as it came.",
        "allocation": "The declared share of users that get it; null where none was declared.",
        "affected_routes": "The routes that the changed files reach.",
        "affected_routes_complete": "Whether every changed file was found in the graph.",
        "idempotency_key": "The sender's name for the request.",
        "digest": _DIGEST,
        "withdrawn_at": "When it was withdrawn; experiments bound before still read it.",
        "graph_before": "The project's current graph until then.",
    },
    STATIC_GRAPHS: {
        "graph_id": "The graph.",
        "project_id": _PROJECT,
        "digest": f"{_DIGEST} The same graph is stored once.",
        "document": "The routes and the files that each reaches, as it came.",
        "route_count": "How many routes it has.",
        "uploaded_at": "When it came first.",
    },
    SEALED_LOG: {
        "hour": "When the hour of receipt begins.",
        "part": "0: what was received live; 1 and up: history that came after the hour was closed.",
        "closed_at": "From when on nothing was added to it.",
        "sealed_at": "When it was listed; null while it waits.",
        "file": "Its Parquet file below `SERVICE_LAKE`; null where it has no event.",
        "rows": "How many events it holds.",
        "bytes": "How large the file is.",
        "sha256": "SHA-256 of the file.",
        "last_erasure": "The newest erasure that was carried out before its rows were read.",
        "compared_at": "When the file was found to hold what PostgreSQL held.",
        "moved_at": "From when on the file alone holds its events; null while PostgreSQL does too.",
        "verified_at": "When all of its bytes were read last.",
        "fault": "What was wrong with the file then; null where it was as it is listed.",
    },
    EXPOSURES: {
        "experiment_id": _EXPERIMENT,
        "unit": "Who was exposed: a session, or a user's pseudonym where users are randomized.",
        "exposed_at": "When its first qualifying event occurred.",
        "block": "The start of the 5 minutes, in UTC, that it is counted in.",
        "arm": "`treatment` or `control`; the others are counted and never compared.",
        "stratum": "What else its build carries besides the change: only like is compared.",
        "commit_sha": "The build that served it.",
        "pseudonym": _PSEUDONYM,
    },
    SESSION_CELLS: {
        "experiment_id": _EXPERIMENT,
        "metric": "The target or a guardrail.",
        "block": "The start of the 5 minutes, in UTC, in which the units were exposed; its day is"
        " the partition.",
        "stratum": "What else the units' builds carry besides the change.",
        "n1": "Units of treatment.",
        "x1": "Units of treatment that converted within the metric's window.",
        "n0": "Units of control.",
        "x0": "Units of control that converted within the metric's window.",
        "y1": "Sum over treatment's units, of a metric of kind `mean`.",
        "yy1": "Sum of squares over treatment's units, of a metric of kind `mean`.",
        "y0": "Sum over control's units, of a metric of kind `mean`.",
        "yy0": "Sum of squares over control's units, of a metric of kind `mean`.",
    },
    EVIDENCE: {
        "experiment_id": _EXPERIMENT,
        "document": "Everything behind a verdict: looks, totals, gates, guardrails, counts.",
        "contract": "The verdict contract that this evidence supports.",
        "as_of": "The look it stands at; null before the first.",
        "next_look_at": "When it can say something new at the earliest; null once decided.",
    },
    VERDICTS: {
        "experiment_id": _EXPERIMENT,
        "project_id": "The project that may ask for it.",
        "contract": "The answer of `GET /v1/reward/{experiment_id}`, to the byte.",
        "evidence": "The evidence document that was published with it.",
        "verdict": "keep, rollback, iterate or abstain.",
        "abstain_reason": "Why it abstains: power, non_identifiable or interacting.",
        "decided": "Whether it stands for good: the database refuses to rewrite it from then on.",
        "as_of": "The look at which it stands; null before the first.",
        "next_look_at": "When it can change at the earliest; null once decided.",
        "published_at": "When the answer last changed.",
    },
}


def table_metadata(key: dg.AssetKey) -> dict[str, object]:
    """Returns what Dagster shows of the table of an asset: its name and its columns."""
    table = TABLES[key]
    return {
        "dagster/table_name": f"{SCHEMA}.{table.name}",
        "dagster/column_schema": column_schema(table, DESCRIPTIONS[key]),
    }


def column_schema(table: Table, descriptions: Mapping[str, str]) -> dg.TableSchema:
    """Returns the schema of a table.

    Raises:
        KeyError: A column has no description.
    """
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=column.name,
                type=column.type.compile(dialect=postgresql.dialect()).lower(),
                description=descriptions[column.name],
                constraints=_constraints(column),
            )
            for column in table.columns
        ],
        constraints=dg.TableConstraints(other=_table_constraints(table)),
    )


def _constraints(column: Column[object]) -> dg.TableColumnConstraints:
    return dg.TableColumnConstraints(
        nullable=bool(column.nullable),
        unique=bool(column.unique) or (column.primary_key and len(column.table.primary_key) == 1),
        other=[f"in {key.column.table.name}" for key in column.foreign_keys],
    )


def _table_constraints(table: Table) -> list[str]:
    words: list[str] = []
    for constraint in table.constraints:
        names = ", ".join(column.name for column in getattr(constraint, "columns", ()))
        if isinstance(constraint, PrimaryKeyConstraint) and names:
            words.append(f"primary key ({names})")
        elif isinstance(constraint, UniqueConstraint):
            words.append(f"unique ({names})")
        elif isinstance(constraint, CheckConstraint):
            words.append(f"check ({constraint.sqltext})")
    return sorted(words)
