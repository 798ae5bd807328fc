"""Bodies that each endpoint takes, a dashboard's owner, and a store for the real server."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from own_postgres.server import EmbeddedPostgres

from storage.postgres.engine import open_engine
from storage.tenants.projects import CreatedProject, create_project
from storage.tenants.setting_changes import apply_settings
from tests.clients.owner import Owner
from tests.processes.server_folder import migrated_server, server_folder


@pytest.fixture
def runtime_event() -> dict[str, Any]:
    return {"event": "page_view", "session_id": "s-1"}


@pytest.fixture
def revenue_event() -> dict[str, Any]:
    return {
        "event": "trial_to_paid",
        "occurred_at": "2026-01-31T12:00:00Z",
        "amount": {"value": 4900, "currency": "USD"},
        "user_ref": "workspace-17",
        "idempotency_key": "invoice-1",
    }


@pytest.fixture
def owner(tenant) -> Owner:
    """Who signed in to change what the dashboard lets owners change, in a project of its own."""
    return Owner(tenant)


@pytest.fixture(scope="session")
def safe_postgres() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL that keeps what it commits, for the real server, which accepts no other."""
    with server_folder() as folder, migrated_server(folder) as postgres:
        yield postgres


@pytest.fixture(scope="module")
def safe_project(safe_postgres) -> CreatedProject:
    """A project of the module's own in it, whose requests are not limited by rate."""
    engine = open_engine(safe_postgres.url, pool_size=1)
    try:
        with engine.begin() as connection:
            project = create_project(connection, secrets.token_hex(6))
            limits = {"per_key": 10**9, "per_address": 10**9}
            apply_settings(connection, project.project_id, {"rate_limits": limits})
            return project
    finally:
        engine.dispose()
