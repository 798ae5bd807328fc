"""The folder that Dagster calls DAGSTER_HOME: its instance's settings, and where the code is."""

import os
from collections.abc import Mapping
from pathlib import Path

from storage.postgres.dagster_schema import create_dagster_schema, dagster_url

# Read by dagster.yaml from the environment, so that no password stands in a file.
POSTGRES_VARIABLE = "SERVICE_DAGSTER_POSTGRES_URL"
LOCATION = "deploy_reward"

INSTANCE = f"""\
# Written by deploy-reward at each start. To run with settings of your own, name a folder with
# your own dagster.yaml in DAGSTER_HOME and start `deploy-reward dagster`.
storage:
  postgres:
    postgres_url:
      env: {POSTGRES_VARIABLE}

telemetry:
  enabled: false
nux:
  enabled: false

# Not ten at once. Each look into the queue opens some connections: once a second would be a fourth
# of what an idle service costs. A run is asked for up to a minute before its block closes.
run_queue:
  max_concurrent_runs: 4
  dequeue_interval_seconds: 5

# A run whose process was killed is started again; after one whose step failed the next tick asks
# for another.
run_retries:
  enabled: true
  max_retries: 1
  retry_on_asset_or_op_failure: false

# No asset of ours has an automation condition.
auto_materialize:
  enabled: false
  use_sensors: false

# A run whose processes were all killed ends by its tag dagster/max_runtime, looked at here.
run_monitoring:
  enabled: true
  start_timeout_seconds: 120
  poll_interval_seconds: 20
  # Of runs without the tag, as those that a person starts from the UI.
  max_runtime_seconds: 7200

# Ticks do not wait for one another: that of webhooks may take some seconds.
schedules:
  use_threads: true
  num_workers: 3
sensors:
  use_threads: true
  num_workers: 2

# Of what a run prints; Dagster's records of it are whole all the same.
python_logs:
  python_log_level: INFO

# Two files a run would never be deleted; what a run prints goes to the code server's log.
compute_logs:
  module: dagster._core.storage.noop_compute_log_manager
  class: NoOpComputeLogManager

retention:
  schedule:
    purge_after_days:
      skipped: 1
      started: 7
      success: 7
      failure: 30
  # A tick each half minute is a row.
  sensor:
    purge_after_days:
      skipped: 1
      started: 7
      success: 7
      failure: 30
"""

# How often Dagster looks for runs to start again; every five seconds by itself.
_RETRY_SECONDS = "20"


def write_dagster_home(data_dir: Path) -> Path:
    """Write the instance's `dagster.yaml` in `<data_dir>/dagster`, the folder for DAGSTER_HOME."""
    home = data_dir / "dagster"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "dagster.yaml").write_text(INSTANCE)
    return home


def write_workspace(home: Path, *, code_server_port: int) -> Path:
    """Write the workspace that points at the shared code server, and give back its path."""
    workspace = home / "workspace.yaml"
    workspace.write_text(
        "load_from:\n"
        "  - grpc_server:\n"
        "      host: 127.0.0.1\n"
        f"      port: {code_server_port}\n"
        f"      location_name: {LOCATION}\n"
    )
    return workspace


def dagster_environment(url: str, home: Path, data_dir: Path, *, web_url: str) -> Mapping[str, str]:
    """The environment of every Dagster process; also makes the schema that they write to.

    Args:
        url: the store's SQLAlchemy address.
        home: the folder that `write_dagster_home` gave back, or the user's own.
        data_dir: the service's data directory.
        web_url: the address of Dagster's web server, for links in alerts where none is set.
    """
    create_dagster_schema(url)
    return {
        "SERVICE_DAGSTER_URL": web_url,
        **os.environ,
        "DAGSTER_HOME": str(home),
        "DAGSTER_EVENT_LOG_CONSUMER_DAEMON_INTERVAL_SECONDS": _RETRY_SECONDS,
        POSTGRES_VARIABLE: dagster_url(url),
        "SERVICE_DATABASE_URL": url,
        "SERVICE_DATA_DIR": str(data_dir),
    }
