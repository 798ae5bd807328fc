"""Freshness: from the moment that nothing more can come, to the verdict that a client is served.

Run by `python -m benchmarks.server.freshness`; it takes about a quarter of an hour. In a running
`deploy-reward up`, each of some projects sees the same harmful canary within a block of five
minutes, live. Each has a grace of its own, so that their outcomes close at times of their own. What
is measured is what the service adds to block, window and grace.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import httpx2

from benchmarks.report import options, report
from benchmarks.server.running import RunningService, running_service

CONTROL, TREATMENT = "a" * 40, "b" * 40
BLOCK = WINDOW = timedelta(minutes=5)
UNITS = 600  # in each arm
FIRST_GRACE, GRACE_STEP = 30, 27  # seconds
POLL_SECONDS = 0.2
MOST_SECONDS = 90.0
_BATCH = 500
_SETTINGS = """
grace_seconds = {grace}
guardrails = []
[metrics.order]
window_seconds = 300
"""


@dataclass(frozen=True, kw_only=True)
class Canary:
    """A project and its experiment.

    Attributes:
        keys: The project's keys by kind.
        grace: How late its events may come.
        experiment_id: What is waited for.
    """

    keys: dict[str, str]
    grace: timedelta
    experiment_id: str


@dataclass(frozen=True, kw_only=True)
class Served:
    """When a verdict came.

    Attributes:
        grace_seconds: The project's.
        last_event: When the last event that it rests on occurred.
        closed: The block's end, the metric's window and the grace.
        decided: By its own word.
        seen: By a client that polled.
    """

    grace_seconds: float
    last_event: datetime
    closed: datetime
    decided: datetime
    seen: datetime
    verdict: str

    @property
    def added_seconds(self) -> float:
        """Returns what the service added."""
        return (self.seen - self.closed).total_seconds()


def measure(times: int) -> list[Served]:
    """Starts a service, lets the canaries run, and waits for each verdict."""
    # Root's server runs as nobody, and must pass the folder.
    folder = Path(tempfile.mkdtemp(prefix="deploy-reward-freshness-"))
    folder.chmod(0o711)
    try:
        with (
            running_service(folder / "data") as service,
            httpx2.Client(base_url=service.api_url, timeout=30) as client,
        ):
            canaries = [_canary(service, client, number) for number in range(times)]
            begins = _next_block(datetime.now(UTC))
            _wait_until(begins + timedelta(seconds=2))
            sent = [_send(client, canary) for canary in canaries]
            if sent[-1] >= begins + BLOCK:
                raise RuntimeError("sending took longer than a block")
            return [
                _served(client, canary, begins, last_event)
                for canary, last_event in zip(canaries, sent, strict=True)
            ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _canary(service: RunningService, client: httpx2.Client, number: int) -> Canary:
    grace = FIRST_GRACE + GRACE_STEP * number
    name = f"shop{number}"
    created = json.loads(service.command("project", "create", name, "--json"))
    settings = service.data_dir.with_name("settings.toml")
    settings.write_text(_SETTINGS.format(grace=grace))
    service.command("settings", "apply", str(settings), "--project", name)
    keys = created["keys"]
    now = datetime.now(UTC)
    for sha, ago, members in (
        (CONTROL, timedelta(days=1), {}),
        (
            TREATMENT,
            timedelta(minutes=1),
            {"allocation": 0.5, "diff": {"base_commit": CONTROL, "files": []}},
        ),
    ):
        deploy = {"commit": {"sha": sha}, "deployed_at": (now - ago).isoformat(), **members}
        _asked(client, "POST", "/v1/deploys", keys["write"], deploy)
    asked = {"treatment_commit": TREATMENT, "target_metric": "order"}
    answer = _asked(client, "POST", "/v1/reward/register", keys["project"], asked)
    return Canary(keys=keys, grace=timedelta(seconds=grace), experiment_id=answer["experiment_id"])


def _asked(
    client: httpx2.Client, method: str, path: str, key: str, body: object = None
) -> dict[str, Any]:
    answer = client.request(method, path, json=body, headers={"X-Service-Project-Key": key})
    answer.raise_for_status()
    return answer.json()


def _send(client: httpx2.Client, canary: Canary) -> datetime:
    """Sends a canary's sessions as they occur, and returns when the last event did."""
    at = datetime.now(UTC)
    events = list(_sessions(at))
    for begin in range(0, len(events), _BATCH):
        body = {"events": events[begin : begin + _BATCH]}
        _asked(client, "POST", "/v1/events", canary.keys["public"], body)
    return at


def _sessions(at: datetime) -> Iterator[dict[str, Any]]:
    """Yields the events: a session in two orders in control, in 1 in 10 in treatment."""
    for commit, every in ((CONTROL, 2), (TREATMENT, 10)):
        for number in range(UNITS):
            told = {
                "session_id": f"{commit[0]}{number}",
                "commit": commit,
                "occurred_at": at.isoformat(),
            }
            yield {**told, "event": "page_view"}
            if number % every == 0:
                yield {**told, "event": "order"}


def _served(
    client: httpx2.Client, canary: Canary, begins: datetime, last_event: datetime
) -> Served:
    closed = begins + BLOCK + WINDOW + canary.grace
    _wait_until(closed)
    path = f"/v1/reward/{canary.experiment_id}"
    while True:
        contract = _asked(client, "GET", path, canary.keys["project"])
        seen = datetime.now(UTC)
        if contract["power_state"]["decided"]:
            break
        if seen - closed > timedelta(minutes=10):
            raise RuntimeError(f"no verdict: {contract}")
        time.sleep(POLL_SECONDS)
    evidence = _asked(client, "GET", f"{path}/evidence", canary.keys["project"])
    return Served(
        grace_seconds=canary.grace.total_seconds(),
        last_event=last_event,
        closed=closed,
        decided=datetime.fromisoformat(evidence["as_of"]),
        seen=seen,
        verdict=contract["verdict"],
    )


def _next_block(at: datetime) -> datetime:
    seconds = BLOCK.total_seconds()
    return datetime.fromtimestamp((at.timestamp() // seconds + 1) * seconds, UTC)


def _wait_until(at: datetime) -> None:
    time.sleep(max(0.0, (at - datetime.now(UTC)).total_seconds()))


_COLUMNS: dict[str, Callable[[Served], str]] = {
    "grace, s": lambda row: f"{row.grace_seconds:.0f}",
    "last event": lambda row: f"{row.last_event:%H:%M:%S}",
    "closed": lambda row: f"{row.closed:%H:%M:%S}",
    "decided as of": lambda row: f"{row.decided:%H:%M:%S}",
    "served": lambda row: f"{row.seen:%H:%M:%S}",
    "added, s": lambda row: f"{row.added_seconds:.1f}",
    "verdict": lambda row: row.verdict,
}


def main() -> None:
    """Measures, and prints it."""
    parser = options(__doc__)
    parser.add_argument("--times", type=int, default=10)
    chosen = parser.parse_args()
    rows = measure(chosen.times)
    added = [row.added_seconds for row in rows]
    caption = (
        f"added: median {median(added):.1f} s, most {max(added):.1f} s of {MOST_SECONDS:.0f} s"
    )
    report(rows, _COLUMNS, lines=chosen.lines, caption=caption)


if __name__ == "__main__":
    main()
