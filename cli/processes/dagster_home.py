"""The folder that Dagster calls DAGSTER_HOME: its instance's settings, and where the code is."""

import os
from collections.abc import Mapping
from pathlib import Path

import click

from storage.lake.lake import MARK, store_identity, store_lake
from storage.postgres.dagster_schema import create_dagster_schema, dagster_url
from storage.postgres.data_dir import ACCEPT, loss_word
from storage.postgres.engine import opened_engine

# dagster.yaml names it, so that no password stands in a file.
POSTGRES_VARIABLE = "SERVICE_DAGSTER_POSTGRES_URL"
LOCATION = "deploy_reward"

# It stands with the other files of a deployment, and here as a link, which the wheel has whole.
_INSTANCE = Path(__file__).with_name("dagster.yaml")
_HEAD = """\
# Written by deploy-reward at each start. To run with settings of your own, name a folder with
# your own dagster.yaml in DAGSTER_HOME and start `deploy-reward dagster`.
"""

# How often Dagster looks for runs to start again; every five seconds by itself.
_RETRY_SECONDS = "20"


def write_dagster_home(data_dir: Path) -> Path:
    """Write the instance's `dagster.yaml` in `<data_dir>/dagster`, the folder for DAGSTER_HOME."""
    home = data_dir / "dagster"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    _rewrite(home / "dagster.yaml", _HEAD + _INSTANCE.read_text())
    return home


def claim_folders(url: str, data_dir: Path) -> None:
    """Note the store in the data directory's `dagster`, and refuse another's, or another's lake."""
    with opened_engine(url) as engine:
        store_lake(engine, data_dir=data_dir, is_read_alone=False)
        identity = store_identity(engine)
    mark = data_dir / "dagster" / MARK
    other = mark.read_text() if mark.exists() else identity
    if other != identity and (word := loss_word(identity, other)):
        raise click.ClickException(
            f"{mark.parent} is another store's: name this store's folder by --data-dir;"
            f" {ACCEPT}={word} takes it"
        )
    mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _rewrite(mark, identity)


def write_workspace(home: Path, *, code_server_port: int) -> Path:
    """Write the workspace that points at the shared code server, and give back its path."""
    workspace = home / "workspace.yaml"
    _rewrite(
        workspace,
        "load_from:\n"
        "  - grpc_server:\n"
        "      host: 127.0.0.1\n"
        f"      port: {code_server_port}\n"
        f"      location_name: {LOCATION}\n",
    )
    return workspace


def _rewrite(path: Path, content: str) -> None:
    """Write a file unless it has this content: a full disk would leave it empty."""
    try:
        if not path.exists() or path.read_text() != content:
            path.write_text(content)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from None


def dagster_environment(url: str, home: Path, data_dir: Path, *, web_url: str) -> Mapping[str, str]:
    """The environment of every Dagster process; also makes the schema that they write to.

    Args:
        home: the folder that `write_dagster_home` gave back, or the user's own.
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
