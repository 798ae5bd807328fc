"""A disk that fills up."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.server_folder import server_folder


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A folder on a disk of its own, of 320 MiB."""
    with server_folder() as folder:
        command = ["mount", "-t", "tmpfs", "-o", "size=320m,mode=711", "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, check=False).returncode != 0:
            pytest.skip("only root, where it may mount a tmpfs, can make a disk that fills up")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
