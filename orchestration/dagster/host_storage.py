"""The host's storage: refuses an instance of Dagster that cannot write the events of our runs."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dagster_shared.yaml_utils import load_yaml_from_path

# An instance names a single storage, or three: of each kind of records.
_SECTIONS = ("storage", "run_storage", "event_log_storage", "schedule_storage")


class HostStorageError(RuntimeError):
    """Each run of ours would hang in the instance; the message is the cure."""


def refuse_storage(environment: Mapping[str, str] = os.environ) -> None:
    """Refuses an instance that DAGSTER_HOME names, on PostgreSQL by psycopg 3.

    Dagster announces each event by a statement that psycopg 3 does not take, and `postgresql://`
    means that driver from SQLAlchemy 2.1 on. The failure cannot be written either: our runs would
    stand at STARTING, and the host's queue behind them.
    """
    path = Path(environment.get("DAGSTER_HOME", os.devnull)) / "dagster.yaml"
    config: Any = (load_yaml_from_path(str(path)) if path.is_file() else None) or {}
    if any(_driver(url) == "psycopg" for url in _urls(config, environment)):
        raise HostStorageError(
            f"{path}: add `scheme: postgresql+psycopg2` to postgres_db, or begin postgres_url with"
            " `postgresql+psycopg2://`: by psycopg 3 Dagster cannot write the events of a run"
        )


def _driver(url: str) -> str:
    from sqlalchemy import make_url

    return make_url(url).get_dialect().driver


def _urls(config: Any, environment: Mapping[str, str]) -> Iterator[str]:  # noqa: ANN401 - YAML
    for section in filter(None, map(config.get, _SECTIONS)):
        postgres = section.get("postgres") or section.get("config") or {}
        url = postgres.get("postgres_url")
        if isinstance(url, dict):
            url = environment.get(url.get("env", ""))
        if url:
            yield url
        elif "postgres_db" in postgres:
            yield f"{postgres['postgres_db'].get('scheme', 'postgresql')}://"
