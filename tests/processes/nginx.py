"""A real nginx with a configuration of ours, where the machine has one."""

import os
import shutil
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes.api_process import eventually


@contextmanager
def nginx(folder: Path, http: str, *, answers: Callable[[], bool]) -> Generator[None]:
    """Runs nginx with what stands in the block `http`, until the context ends.

    Args:
        folder: Where it keeps its files.
        http: The contents of the block.
        answers: Whether it serves; asked until it does.
    """
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("there is no nginx on this machine (Debian: apt-get install nginx-light)")
    folders = "".join(
        f"{kind}_temp_path {folder}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log stderr;"
        f"events {{}} http {{ access_log off; {folders}\n{http}\n}}"
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, "-p", str(folder), "-c", str(folder / "nginx.conf")], stdout=log, stderr=log
        )

    def serves() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        return answers()

    try:
        eventually(serves)
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)
