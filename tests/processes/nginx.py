"""A real nginx with a configuration of ours, where the machine has nginx."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.wire import Wire, get
from tests.processes.api_process import ApiProcess, eventually, port_of_our_own

CONFIGURATION = Path(__file__).parents[2] / "docs/operations/deployment/nginx.conf"


@contextmanager
def nginx(folder: Path, http: str, *, answers: Callable[[], bool]) -> Generator[None]:
    """Runs nginx with what stands in the block `http`, until the context ends."""
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


@contextmanager
def nginx_in_front(
    folder: Path, api: ApiProcess, changes: Mapping[str, str] | None = None
) -> Generator[int]:
    """Runs nginx as we ship it before an API, but for TLS; yields its port."""
    shown = CONFIGURATION.read_text()
    limits, site = shown.index("client_header_timeout"), shown.index("upstream ")
    shown = (
        shown[limits : shown.index("# A name that is not ours")]
        + shown[site : shown.index("# What another site's page")]
    )
    with port_of_our_own() as port:
        for before, after in {
            "listen 443 ssl;": f"listen 127.0.0.1:{port};",
            "127.0.0.1:8000": f"127.0.0.1:{api.port}",
            **(changes or {}),
        }.items():
            # A port of ours may begin with the digits of another.
            shown, count = re.subn(rf"{re.escape(before)}(?!\d)", lambda _, new=after: new, shown)
            assert count

        def answers() -> bool:
            try:
                with Wire(port) as wire:
                    return wire.send(get("/healthz")).answer().status == 200
            except OSError:
                return False

        with nginx(folder, re.sub(r"ssl_certificate.*", "", shown), answers=answers):
            yield port
