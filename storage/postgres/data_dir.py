"""The data directory: where the service keeps its data on this machine, and what belongs to it."""

import hashlib
import os
from functools import cached_property
from pathlib import Path

DATABASE = "deploy_reward"
ROLE = "deploy_reward"
PORT = 5432  # names the socket only: nothing listens on the network
SOCKET_PATH_LIMIT = 107  # bytes in sockaddr_un.sun_path, its closing zero taken off

ACCEPT = "SERVICE_ACCEPT"


def loss_word(*texts: str) -> str | None:
    """Returns the word that accepts the loss of these texts; None where the operator gave it."""
    word = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
    return None if word in os.environ.get(ACCEPT, "").split(",") else word


def default_data_dir() -> Path:
    """Where the service keeps its data unless `--data-dir` says otherwise.

    `SERVICE_DATA_DIR`, else for root `/var/lib/deploy-reward` (a place that the server's
    unprivileged user can enter, unlike root's home), else `deploy-reward` in the user's data
    folder (`XDG_DATA_HOME`, `~/.local/share`).
    """
    if named := os.environ.get("SERVICE_DATA_DIR"):
        return Path(named).expanduser().resolve()
    if os.geteuid() == 0:
        return Path("/var/lib/deploy-reward")
    share = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(share).resolve() / "deploy-reward"


def sync_folder(folder: Path) -> None:
    """Puts the entries of a folder on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ClusterAddress:
    """Where the server of a data directory is reached."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.expanduser().resolve()
        self.folder = self.data_dir / "postgres"

    @cached_property
    def socket_folder(self) -> Path:
        """The folder of the Unix socket."""
        beside = self.data_dir / "postgres.socket"
        if len(os.fsencode(beside / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_LIMIT:
            return beside
        name = hashlib.sha256(os.fsencode(self.data_dir)).hexdigest()[:16]
        # Not TMPDIR, which differs between the shells that must find the same server.
        return Path("/tmp", f"deploy-reward-{name}")  # noqa: S108 (checked for its owner)

    @property
    def socket(self) -> Path:
        """The Unix socket."""
        return self.socket_folder / f".s.PGSQL.{PORT}"

    @property
    def url(self) -> str:
        """SQLAlchemy's address of our database."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """Returns SQLAlchemy's address of a database."""
        from sqlalchemy.engine import URL  # noqa: PLC0415 - a command that asks a service has none

        query = {"host": str(self.socket_folder), "port": str(PORT)}
        return URL.create(
            "postgresql+psycopg", username=ROLE, database=database, query=query
        ).render_as_string(hide_password=False)


def running_url(data_dir: Path) -> str | None:
    """The address of the server that runs on this data directory now, also if we did not start it.

    Returns:
        A SQLAlchemy address, or None when no server there takes connections.
    """
    import psycopg  # noqa: PLC0415 - as above

    from storage.postgres.engine import connection_string  # noqa: PLC0415 - as above

    cluster = ClusterAddress(data_dir)
    if not cluster.socket.exists():
        return None
    try:
        with psycopg.connect(connection_string(cluster.url), connect_timeout=5) as connection:
            row = connection.execute("SHOW data_directory").fetchone()
    except psycopg.OperationalError:
        return None
    return cluster.url if row and Path(row[0]) == cluster.folder else None
