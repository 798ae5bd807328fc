"""Asset keys, groups and owner: how our things are named in an instance that we may share."""

from datetime import timedelta

import dagster as dg

PREFIX = "deploy_reward"
# Sealing has a run an hour.
SEALED_FRESHNESS = dg.FreshnessPolicy.time_window(
    fail_window=timedelta(hours=3), warn_window=timedelta(minutes=90)
)
# An open experiment has a run an hour, and so has a day that it settled; else there is no run.
FRESHNESS = dg.FreshnessPolicy.time_window(
    fail_window=timedelta(hours=50), warn_window=timedelta(hours=26)
)
OWNERS = [f"team:{PREFIX}"]
# An instance's catalogue finds all that is ours by this tag.
TAGS = {"service": PREFIX}
# This tag of a run of the fast schedule says when the last block that it waits for closes.
CLOSES_TAG = f"{PREFIX}/closes_at"
# Our `dagster.yaml` limits by this tag how many runs of a kind go on at once.
POOL_TAG = f"{PREFIX}/pool"
# This tag of a run says on which store it holds its lock.
STORE_TAG = f"{PREFIX}/store"
# This tag says why it was asked for.
DUE_TAG = f"{PREFIX}/due"


def asset_key(name: str) -> dg.AssetKey:
    """Returns the key of our asset of that name."""
    return dg.AssetKey([PREFIX, name])


RUNTIME_EVENTS = asset_key("runtime_events")
REVENUE_EVENTS = asset_key("revenue_events")
DEPLOYS = asset_key("deploys")
STATIC_GRAPHS = asset_key("static_graphs")
SEALED_LOG = asset_key("sealed_log")
EXPERIMENTS = asset_key("experiments")
EXPOSURES = asset_key("exposures")
SESSION_CELLS = asset_key("session_cells")
EVIDENCE = asset_key("evidence")
VERDICTS = asset_key("verdicts")
LEDGER = asset_key("ledger")
OWN_SPLITS = asset_key("own_splits")

# These tables are not named as their asset is.
_TABLES = {STATIC_GRAPHS: "graphs", SEALED_LOG: "sealed_hours", SESSION_CELLS: "cells"}


def table_of(key: dg.AssetKey) -> str:
    """Returns the name of the store's table of an asset."""
    return _TABLES.get(key, key.path[-1])


def table_metadata(key: dg.AssetKey) -> dict[str, str]:
    """Returns what Dagster shows of the table of an asset."""
    # Our schema has the name of all that is ours.
    return {"dagster/table_name": f"{PREFIX}.{table_of(key)}"}
