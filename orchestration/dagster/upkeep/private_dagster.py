"""Dagster's private names that have no public one, with a check of its tables.

Nothing else of ours imports from `dagster._core`. A release that moved a name, or changed a column,
is one clear error at import instead of rows that are deleted wrongly. What each is for:

- A run or a tick belongs to a code location by `REPOSITORY_LABEL_TAG`, `RemoteRepositoryOrigin`
  and `InstigatorSelector`; runs of assets that a person started carry `IMPLICIT_ASSET_JOB_NAME`.
  Without them a guest would prune the records of its host.
- `TickStatus` and `AssetCheckExecutionRecordStatus` are arguments of the instance's methods.
- The three tables: Dagster deletes whole runs alone. It has no call that deletes rows of checks,
  events of no run, or all but the newest materializations of a run.
- A workspace's context: `dagster-webserver` itself takes no middleware, and the guard is one.
"""

from collections.abc import Collection, Mapping

import sqlalchemy as sa
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.definitions.selector import InstigatorSelector
from dagster._core.remote_origin import RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import TickStatus
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.tags import REPOSITORY_LABEL_TAG
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget

__all__ = [
    "IMPLICIT_ASSET_JOB_NAME",
    "REPOSITORY_LABEL_TAG",
    "AssetCheckExecutionRecordStatus",
    "AssetCheckExecutionsTable",
    "AssetEventTagsTable",
    "InstigatorSelector",
    "RemoteRepositoryOrigin",
    "SqlEventLogStorage",
    "SqlEventLogStorageTable",
    "TickStatus",
    "WorkspaceFileTarget",
    "WorkspaceProcessContext",
]

# What `own_records` reads of each table.
_COLUMNS: Mapping[sa.Table, Collection[str]] = {
    SqlEventLogStorageTable: (
        *("id", "run_id", "asset_key", "dagster_event_type", "partition", "timestamp"),
    ),
    AssetEventTagsTable: ("event_id",),
    AssetCheckExecutionsTable: (
        *("id", "asset_key", "check_name", "partition", "execution_status", "create_timestamp"),
    ),
}
if _missing := [
    f"{table.name}.{column}"
    for table, columns in _COLUMNS.items()
    for column in columns
    if column not in table.c
]:
    raise ImportError(
        f"this release of Dagster lacks {', '.join(_missing)}: install the one of constraints.txt"
    )
