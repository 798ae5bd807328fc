"""`deploy-reward up` on a disk at its last byte: it answers 503, stays, and serves again."""

import os
import re
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import text

from storage.postgres.child_process import LOG_BYTES
from storage.postgres.data_dir import running_url
from storage.postgres.engine import opened_engine
from tests.cli.processes.test_up import processes, start
from tests.processes.api_process import eventually

pytestmark = pytest.mark.process
MEBIBYTE = 2**20


def fill(disk: Path, *, but: int) -> Path:
    """Takes what is free of a disk, but for so many bytes."""
    filler = disk / "others"
    result = os.statvfs(disk)
    free = result.f_bavail * result.f_frsize
    with filler.open("ab") as file:
        os.posix_fallocate(file.fileno(), file.tell(), free - but)
    return filler


def test_a_disk_at_its_last_byte_ends_nothing_and_loses_nothing(small_disk) -> None:
    data_dir = small_disk / "data"
    up = start(data_dir)
    try:
        key = re.search(r"public +(pk_\w+)", up.printed())
        assert key is not None
        acknowledged: set[str] = set()
        numbers = iter(range(10_000))

        def status() -> int:
            session = f"s-{next(numbers)}"
            event = {"event": "page_view", "session_id": session, "properties": {"x": "y" * 3000}}
            answer = httpx2.post(
                f"http://127.0.0.1:{up.port()}/v1/events",
                json={"events": [event] * 300},
                headers={"X-Service-Project-Key": key[1]},
                timeout=60,
            )
            if answer.status_code == 202:
                acknowledged.add(session)
            return answer.status_code

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
        with opened_engine(running_url(data_dir) or "") as engine, engine.connect() as connection:
            stored = connection.execute(text("SELECT DISTINCT session_id FROM runtime_events"))
            assert acknowledged <= set(stored.scalars())
    finally:
        up.process.terminate()
        up.process.wait(60)
        eventually(lambda: not processes(data_dir))
