"""Folders for the data of tests' PostgreSQL servers, and servers whose store is migrated."""

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from own_postgres.server import EmbeddedPostgres

from storage.schema.migrate import upgrade

# A disk in memory. What a killed process wrote is in the kernel's hands on either: only a power
# failure, which no test can make, would tell them apart.
_MEMORY = Path("/dev/shm")  # noqa: S108 (a new folder in it, with a name that nobody can guess)
# A cluster with its log takes some hundred megabytes, and each worker of a run has a few.
_ROOM = 4 * 2**30


@contextmanager
def server_folder() -> Generator[Path]:
    """A folder that any user may pass through, gone at the end."""
    # pytest's tmp_path can be entered by its owner alone, and root's server runs as nobody.
    folder = Path(tempfile.mkdtemp(prefix="deploy-reward-", dir=_parent()))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def migrated_server(folder: Path) -> Generator[EmbeddedPostgres]:
    """A server on a folder's `data` with a migrated store: a copy of the process's first."""
    data = folder / "data"
    data.mkdir(mode=0o711)
    # `cp` keeps the owner, which is nobody where we are root.
    subprocess.run(["cp", "-a", str(_migrated_cluster()), str(data / "postgres")], check=True)
    with EmbeddedPostgres(data) as postgres:
        yield postgres


@cache
def _migrated_cluster() -> Path:
    """The files of a server that was stopped once its store was migrated, gone with the process."""
    stack = ExitStack()
    atexit.register(stack.close)
    data = stack.enter_context(server_folder()) / "data"
    with EmbeddedPostgres(data) as postgres:
        upgrade(postgres.url)
    return data / "postgres"


def _parent() -> Path | None:
    """The disk in memory where there is room, from which programs can be started."""
    if not _MEMORY.is_dir() or not os.access(_MEMORY, os.W_OK | os.X_OK):
        return None
    result = os.statvfs(_MEMORY)
    has_room = result.f_bavail * result.f_frsize >= _ROOM
    return _MEMORY if has_room and not result.f_flag & os.ST_NOEXEC else None
