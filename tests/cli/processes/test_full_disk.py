"""`deploy-reward up` on a disk that is full, broken or read-only: it stays, and serves again."""

import errno
import os
import re
import signal
from pathlib import Path

import httpx2
import pytest
from own_postgres.child_process import LOG_BYTES
from sqlalchemy import text

from storage.postgres.data_dir import running_url
from storage.postgres.engine import opened_engine
from tests.cli.processes.failing_disk import FailingDisk
from tests.cli.processes.test_up import Up, command_of, processes, start
from tests.processes.api_process import eventually
from tests.processes.server_folder import server_folder

pytestmark = pytest.mark.process
MEBIBYTE = 2**20


def fill(disk: Path, *, but: int) -> Path:
    filler = disk / "others"
    result = os.statvfs(disk)
    free = result.f_bavail * result.f_frsize
    with filler.open("ab") as file:
        os.posix_fallocate(file.fileno(), file.tell(), free - but)
    return filler


class Sender:
    """A client that remembers the sessions whose events were acknowledged."""

    def __init__(self, up: Up) -> None:
        """Reads the public key that `up` printed."""
        key = re.search(r"public +(pk_\w+)", up.printed())
        assert key is not None
        self._up, self._key, self._numbers = up, key[1], iter(range(10_000))
        self.acknowledged: set[str] = set()

    def status(self, events: int = 300) -> int:
        session = f"s-{next(self._numbers)}"
        event = {"event": "page_view", "session_id": session, "properties": {"x": "y" * 3000}}
        try:
            answer = httpx2.post(
                f"http://127.0.0.1:{self._up.port()}/v1/events",
                json={"events": [event] * events},
                headers={"X-Service-Project-Key": self._key},
                timeout=60,
            )
        except httpx2.TransportError:
            return 0
        if answer.status_code == 202:
            self.acknowledged.add(session)
        return answer.status_code

    def stored(self) -> set[str]:
        url = running_url(self._up.data_dir) or ""
        with opened_engine(url) as engine, engine.connect() as connection:
            rows = connection.execute(text("SELECT DISTINCT session_id FROM runtime_events"))
            return set(rows.scalars())


def end(up: Up) -> None:
    up.process.terminate()
    up.process.wait(60)
    eventually(lambda: not processes(up.data_dir))


def test_a_disk_at_its_last_byte_ends_nothing_and_loses_nothing(small_disk) -> None:
    data_dir = small_disk / "data"
    up = start(data_dir)
    try:
        sender = Sender(up)
        status = sender.status
        assert status() == 202
        log = data_dir / "logs" / "api.log"
        fill(small_disk, but=LOG_BYTES + 14 * MEBIBYTE)
        with log.open("ab") as file:
            file.write(b"x" * LOG_BYTES + b"\n")
        eventually(lambda: log.stat().st_size < MEBIBYTE)
        assert not log.with_name("api.log.1").exists()
        filler = fill(small_disk, but=0)
        # What PostgreSQL had made room for is used up first.
        eventually(lambda: status() == 503, pause=0.01)
        assert up.process.poll() is None, up.printed()
        filler.unlink()
        eventually(lambda: status() == 202)
        assert up.process.poll() is None, up.printed()
        assert "Traceback" not in up.printed()
        assert sender.acknowledged <= sender.stored()
    finally:
        end(up)


# By their names in the commands of `up`'s own children.
CHILDREN = ("cli api", "dagster api grpc", "orchestration.daemon", "orchestration.web_server")


def child(up: Up, name: str) -> int | None:
    """The number of a child of `up`, and of nobody below it."""
    parents = (Path(f"/proc/{pid}/stat") for pid in processes(up.data_dir))
    own = (
        int(stat.parent.name)
        for stat in parents
        if stat.exists() and int(stat.read_text().rpartition(")")[2].split()[1]) == up.process.pid
    )
    return next((pid for pid in own if name in command_of(pid)), None)


def test_a_write_beside_the_store_that_fails_ends_nothing(monkeypatch) -> None:
    with server_folder() as folder:
        disk = FailingDisk(folder)
        for name, value in disk.environment.items():
            monkeypatch.setenv(name, value)
        data_dir = folder / "data"
        up = start(data_dir)
        try:
            sender = Sender(up)
            log = data_dir / "logs" / "api.log"
            for number in (errno.EIO, errno.EROFS, errno.ENOSPC):
                for part in ("logs", "dagster", "bytecode", "up.lock"):
                    disk.fail(number, data_dir / part)
                    assert sender.status() == 202
                disk.fail(number, data_dir / "logs")
                with log.open("ab") as file:
                    file.truncate(LOG_BYTES + 1)
                reason = f"the log of API is not cut: {os.strerror(number)}"
                eventually(lambda line=reason: line in up.printed())
                for name in CHILDREN:
                    _require_another(up, name)
                eventually(lambda: sender.status() == 202)
                disk.heal()
                eventually(lambda: log.stat().st_size < LOG_BYTES)
            for number in (errno.EIO, errno.EROFS, errno.ENOSPC):
                disk.fail(number, data_dir / "postgres")
                eventually(lambda: sender.status() == 503, pause=0.01)
                disk.heal()
                eventually(lambda: sender.status() == 202)
            assert up.process.poll() is None, up.printed()
            assert "Traceback" not in up.printed()
            assert sender.acknowledged <= sender.stored()
        finally:
            disk.heal()
            end(up)


def _require_another(up: Up, name: str) -> None:
    before = eventually(lambda: child(up, name))
    os.kill(before, signal.SIGKILL)
    eventually(lambda: child(up, name) not in (None, before), seconds=60)
