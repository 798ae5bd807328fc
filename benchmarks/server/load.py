"""A load of requests, which wrk (Debian's package) sends."""

import json
import secrets
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from benchmarks.server.stage import Stage
from storage.tenants.keys import KeyKind

CONNECTIONS = 64
# An event of each connection at a time is what `one event a request` means; fewer batches are
# under way at once, as from a few servers that each send them in turn.
BATCH_CONNECTIONS = 16
_REPORT = """
done = function(summary, latency, requests)
  io.write(string.format(
    '{"requests": %d, "microseconds": %d, "p50_us": %d, "p99_us": %d, "failures": %d}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status
      + summary.errors.timeout))
end
"""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What wrk sends, each connection its next request once it has an answer.

    Attributes:
        stage: Whose project sends it, and whose folder holds its script.
        script: Its lines in Lua.
        connections: How many send at once.
        kind: Of the key.
    """

    stage: Stage
    script: str
    connections: int
    kind: KeyKind = KeyKind.WRITE

    def on(self, url: str, *, seconds: float) -> dict[str, float]:
        """Returns what wrk reports: requests, failures, microseconds in all, p50 and p99."""
        ran = subprocess.run(
            self.command(url, seconds=seconds), check=False, capture_output=True, text=True
        )
        if ran.returncode:
            raise RuntimeError(f"wrk ended with {ran.returncode}: {ran.stdout}{ran.stderr}")
        return json.loads(ran.stdout.splitlines()[-1])

    def command(self, url: str, *, seconds: float) -> list[str]:
        """Returns the command that sends it."""
        script = self.stage.folder / f"{secrets.token_hex(4)}.lua"
        script.write_text(self.script + _REPORT)
        options = [f"-c{self.connections}", f"-d{seconds:.0f}s", "-s", str(script)]
        return ["wrk", "-t1", *options, *self.stage.headers(self.kind), url]


def posting(rows: int) -> str:
    """Returns wrk's script for posts of some events; its answer to each is the same body."""
    now = datetime.now(UTC)
    events = [
        {
            "event": "page_view",
            "session_id": f"s-{index:08d}",
            "occurred_at": (now - timedelta(milliseconds=index)).isoformat().replace("+00:00", "Z"),
            "commit": "4f2a9c1d",
            "route": "/checkout/[id]",
            "event_id": f"e-{index:08d}",
        }
        for index in range(rows)
    ]
    body = json.dumps(events[0] if rows == 1 else {"events": events})
    return f'wrk.method = "POST"\nwrk.body = [==[{body}]==]\n'
