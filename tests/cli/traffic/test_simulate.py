"""`simulate`: a load is sent when it is due and counted once; live traffic comes as it occurs."""

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from sqlalchemy import text

from cli.main import main
from cli.traffic.canary import Scenario, traffic
from cli.traffic.posting import Refused, connected
from cli.traffic.simulate import sent
from storage.tenants.keys import KeyKind

PUBLIC = "pk_1"
LATER = {"Retry-After": "1"}


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer of the stub; without a status the connection is closed instead."""

    status: int | None = 202
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class Stub:
    """A service that answers as it is told, and remembers what came, and when."""

    reply: Callable[[int], Reply]
    bodies: list[bytes] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    url: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def came(self, body: bytes) -> int:
        with self._lock:
            self.bodies.append(body)
            self.times.append(time.monotonic())
            return len(self.bodies) - 1

    @property
    def events(self) -> list[dict[str, Any]]:
        documents = [json.loads(body) for body in self.bodies]
        return [event for one in documents for event in one.get("events", [one])]


def receipt(body: bytes) -> bytes:
    accepted = len(json.loads(body).get("events", [None]))
    return json.dumps({"accepted": accepted, "late": 0, "rejected": []}).encode()


@pytest.fixture
def stub() -> Iterator[Callable[..., Stub]]:
    """Serves a stub whose answers a function of the request's number gives."""
    servers: list[ThreadingHTTPServer] = []

    def serve(reply: Callable[[int], Reply] = lambda _: Reply()) -> Stub:
        made = Stub(reply=reply)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Content-Encoding"] == "gzip":
                    body = gzip.decompress(body)
                told = made.reply(made.came(body))
                if told.status is None:
                    self.close_connection = True
                    return
                content = receipt(body)
                self.send_response(told.status)
                for name, value in told.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        made.url = f"http://127.0.0.1:{server.server_port}"
        return made

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def load(url: str, *words: object, key: str = PUBLIC) -> Result:
    arguments = ["simulate", "load", "--api-url", url, "--key", key, "--json", *map(str, words)]
    return CliRunner().invoke(main, arguments)


def summary(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_rate_is_held_to_the_request(stub: Callable[..., Stub]) -> None:
    service, began = stub(), time.monotonic()
    told = summary(load(service.url, "--rate", 200, "--batch", 7, "--seconds", 0.5))
    # 14.3 requests become due before the end: the fifteenth is the last.
    assert (told["requests"], told["events"], told["accepted"]) == (15, 105, 105)
    assert told["statuses"] == {"202": 15}
    assert (told["retries"], told["failed"], told["interrupted"]) == (0, 0, False)
    assert told["bytes_sent"] == sum(len(body) for body in service.bodies)
    # The last one is due after 0.49 seconds.
    assert service.times[-1] - began >= 0.49


@pytest.mark.parametrize("batch", [1, 3])
def test_every_event_of_a_load_is_another_one(stub: Callable[..., Stub], batch: int) -> None:
    service = stub()
    for _ in range(2):
        load(service.url, "--rate", 300, "--batch", batch, "--seconds", 0.2)
    assert len(service.events) == 120
    for name in ("event_id", "session_id"):
        assert len({event[name] for event in service.events}) == 120
    assert {event["environment"] for event in service.events} == {"load"}


def test_a_late_answer_charges_every_request_that_it_kept_waiting(
    stub: Callable[..., Stub],
) -> None:
    held = threading.Event()

    def first_one_stalls(number: int) -> Reply:
        if number == 0:
            held.wait(0.8)
        return Reply()

    words = ("--rate", 50, "--batch", 1, "--seconds", 0.4, "--connections", 1)
    told = summary(load(stub(first_one_stalls).url, *words))
    # All twenty were due within 0.4 seconds, and nineteen could be sent after 0.8 alone.
    assert told["milliseconds_from_due"]["p50"] >= 400
    assert told["milliseconds_from_sent"]["max"] >= 800


def test_a_late_answer_does_not_slow_the_sender(stub: Callable[..., Stub]) -> None:
    everybody_else = threading.Event()

    def first_one_waits_for_all_others(number: int) -> Reply:
        if number == 0:
            assert everybody_else.wait(30)
        if number == 19:
            everybody_else.set()
        return Reply()

    words = ("--rate", 100, "--batch", 1, "--seconds", 0.2, "--connections", 2)
    told = summary(load(stub(first_one_waits_for_all_others).url, *words))
    assert told["statuses"] == {"202": 20}


@pytest.mark.parametrize(
    ("status", "rate"), [(429, ("--rate", "10")), (503, ())], ids=["429 open", "503 closed"]
)
def test_a_busy_service_gets_the_same_request_when_it_asks_for_it(
    stub: Callable[..., Stub], status: int, rate: tuple[str, ...]
) -> None:
    busy_once = stub(lambda number: Reply() if number else Reply(status=status, headers=LATER))
    words = ("--batch", 2, "--seconds", 0.05, "--connections", 1, *rate)
    told = summary(load(busy_once.url, *words))
    first, again = busy_once.bodies[0], busy_once.bodies[1]
    assert first == again
    assert busy_once.times[1] - busy_once.times[0] >= 1
    assert told["statuses"] == {"202": told["requests"], str(status): 1}
    assert (told["retries"], told["failed"]) == (1, 0)
    assert (
        told["accepted"] == 2 * told["requests"] == len({e["event_id"] for e in busy_once.events})
    )
    assert told["milliseconds_from_due"]["max"] >= 1000


def test_a_broken_connection_gets_the_same_request_again(stub: Callable[..., Stub]) -> None:
    service = stub(lambda number: Reply(status=None if number == 0 else 202))
    told = summary(load(service.url, "--rate", 1, "--batch", 1, "--seconds", 0.5))
    assert service.bodies[0] == service.bodies[1]
    assert told["statuses"] == {"202": 1, "none": 1}
    assert (told["requests"], told["accepted"], told["failed"]) == (1, 1, 0)


def test_a_fault_of_the_service_is_counted_and_the_load_goes_on(stub: Callable[..., Stub]) -> None:
    service = stub(lambda number: Reply(status=500 if number == 3 else 202))
    told = summary(load(service.url, "--rate", 100, "--batch", 1, "--seconds", 0.1))
    assert told["statuses"] == {"202": 9, "500": 1}
    assert (told["failed"], told["retries"]) == (1, 0)


def test_a_service_that_is_not_there_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.traffic.sender.UNHEARD_SECONDS", 0.2)
    result = load("http://127.0.0.1:9", "--seconds", 1)
    assert result.exit_code == 1
    assert "does not answer" in result.output


def test_a_load_stands_in_the_store_event_by_event(service: Any, serve: Any) -> None:
    key = service.project.keys[KeyKind.PUBLIC]
    with serve(service) as url:
        told = summary(load(url, "--batch", 20, "--seconds", 0.5, "--connections", 3, key=key))
    counted = text("SELECT count(*), count(DISTINCT event_id) FROM runtime_events")
    stored = service.in_store(lambda connection: tuple(connection.execute(counted).one()))
    assert told["accepted"] == told["events"] > 0
    assert stored == (told["accepted"], told["accepted"])
    assert told["late"] == told["rejected"] == told["failed"] == 0


def test_a_key_of_the_wrong_kind_ends_the_load_with_the_services_word(
    service: Any, serve: Any
) -> None:
    key = service.project.keys[KeyKind.PROJECT]
    with serve(service) as url:
        result = load(url, "--seconds", 30, key=key)
    assert result.exit_code == 1
    assert "403" in result.stderr
    assert json.loads(result.stdout)["accepted"] == 0
    assert key not in result.output


@pytest.mark.parametrize(
    "words",
    [
        ("load", "--connections", "1", "--batch", "1", "--seconds", "300"),
        ("load", "--rate", "100", "--batch", "1", "--seconds", "300"),
        ("canary", "--live", "--hours", "1", "--sessions-per-day", "5000000"),
    ],
    ids=["one connection", "load", "live"],
)
@pytest.mark.process
def test_an_interrupt_ends_with_the_summary_of_all_that_was_sent(
    stub: Callable[..., Stub], words: tuple[str, ...]
) -> None:
    interrupted = threading.Event()

    def after_the_interrupt(number: int) -> Reply:
        if number:
            interrupted.wait(60)
            # Nothing tells when the client heard of it. An answer after that must still count.
            time.sleep(0.3)
        return Reply()

    service = stub(after_the_interrupt)
    command = [sys.executable, "-m", "cli", "simulate", *words, "--api-url", service.url]
    environment = {name: value for name, value in os.environ.items() if name != "SERVICE_API_URL"}
    process = subprocess.Popen(
        [*command, "--key", PUBLIC, "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while len(service.bodies) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        interrupted.set()
        output, _ = process.communicate(timeout=60)
    finally:
        interrupted.set()
        process.kill()
    told = json.loads(output)
    assert process.returncode == 128 + signal.SIGINT
    assert told["interrupted"]
    assert told["statuses"] == {"202": told["requests"]}
    assert told["requests"] == len(service.bodies) >= 2


def test_live_traffic_comes_as_it_occurs_with_its_revenue_and_its_late_events(
    service: Any, serve: Any
) -> None:
    start = datetime.now(UTC)
    scenario = Scenario(
        start=start,
        end=start + timedelta(seconds=1),
        control="c0ffee0",
        treatment="bada550",
        sessions_per_day=60 * 86_400,
        baseline=0.5,
        delay=timedelta(seconds=0.5),
        delay_spread=0.1,
        late=0.3,
        lateness=timedelta(seconds=2),
        revenue=0.5,
    )
    run = traffic(scenario, np.random.default_rng(3))
    with serve(service) as url, connected(url) as client:
        told = sent(client, run, key=key(service), replay=False, console=nowhere())
    assert not told.interrupted
    assert told.document["accepted"] == told.document["events"] == len(run)
    held = text("SELECT received_at - occurred_at FROM runtime_events")
    delays = service.in_store(lambda connection: connection.execute(held).scalars().all())
    paid = service.in_store(
        lambda connection: connection.execute(text("SELECT count(*) FROM revenue_events")).scalar()
    )
    assert paid > 0
    assert len(delays) + paid == len(run)
    assert min(delays) >= timedelta(0)
    assert np.mean([delay >= timedelta(seconds=2) for delay in delays]) > 0.1


def test_the_truth_of_the_sample_is_what_the_service_stored(service: Any, serve: Any) -> None:
    service.settings(sample_rate=0.5)
    start = datetime.now(UTC)
    scenario = Scenario(
        start=start,
        end=start + timedelta(seconds=1),
        control="c0ffee0",
        treatment="bada550",
        sessions_per_day=100 * 86_400,
        baseline=0.5,
        delay=timedelta(seconds=0.1),
        delay_spread=0.1,
    )
    run = traffic(scenario, np.random.default_rng(3))
    with serve(service) as url, connected(url) as client:
        told = sent(client, run, key=key(service), replay=False, console=nowhere())
    assert told.document["accepted"] + told.document["sampled_out"] == len(run)
    assert told.sample is not None
    counted = text(
        "SELECT commit_sha, count(DISTINCT session_id) AS units,"
        " count(*) FILTER (WHERE event = 'activation') AS conversions"
        " FROM runtime_events GROUP BY commit_sha"
    )
    rows = service.in_store(lambda connection: connection.execute(counted).all())
    stored = {row.commit_sha: (row.units, row.conversions) for row in rows}
    truth = run.truth_within(told.sample)
    assert 20 < sum(arm.units for arm in truth.values()) < 80
    assert stored == {
        "c0ffee0": (truth["control"].units, truth["control"].conversions),
        "bada550": (truth["treatment"].units, truth["treatment"].conversions),
    }


def key(service: Any) -> str:
    return service.project.keys[KeyKind.WRITE]


def nowhere() -> Console:
    return Console(file=io.StringIO())


def test_a_refusal_ends_live_traffic_before_the_next_batch_is_due(service: Any, serve: Any) -> None:
    start = datetime.now(UTC)
    hourly = Scenario(
        start=start,
        end=start + timedelta(days=1),
        control="c0ffee0",
        treatment="bada550",
        sessions_per_day=24,
    )
    first = traffic(hourly, np.random.default_rng(1)).arrived[0]
    # The first session has just come; the next one will in an hour.
    shift = timedelta(seconds=first + 1)
    just_begun = replace(hourly, start=start - shift, end=hourly.end - shift)
    run = traffic(just_begun, np.random.default_rng(1))
    reward = service.project.keys[KeyKind.PROJECT]
    with serve(service) as url, connected(url) as client, pytest.raises(Refused, match="403"):
        sent(client, run, key=reward, replay=False, console=nowhere())


def test_simulate_alone_means_the_canary() -> None:
    help_of = [
        CliRunner().invoke(main, ["simulate", *words, "--help"]).output
        for words in ((), ("canary",), ("load",))
    ]
    assert "canary" in help_of[0]
    assert "load" in help_of[0]
    assert "--sessions-per-day" in help_of[1]
    assert "--connections" in help_of[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--key", "pk_1"], "--replay needs the write key (wk_...)"),
        (["--deploys", "--key", "pk_1"], "--replay and --deploys need the write key (wk_...)"),
        (["--live", "--key", "pk_1", "--revenue", "0.5"], "--revenue needs the write key (wk_...)"),
        (["--key", "rk_1"], "is a project key (rk_...)"),
    ],
)
def test_a_key_of_another_kind_is_refused_before_anything_is_sent(
    words: list[str], message: str
) -> None:
    told = CliRunner().invoke(main, ["simulate", *words])
    assert told.exit_code == 2
    assert message in " ".join(told.output.split())
