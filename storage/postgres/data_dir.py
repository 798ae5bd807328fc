"""The data directory: where the service keeps its data on this machine, and what belongs to it."""

import hashlib
import os
from pathlib import Path

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
