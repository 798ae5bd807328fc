"""A quiet tenant beside a flooding tenant: the latency of its requests, against that of it alone.

Run by `python -m benchmarks.server.quiet_tenant`; needs wrk. The quiet project sends some hundred
events a second, one a request; another project floods the same server on connections of its own.
Both share this machine's cores with wrk and PostgreSQL: a flood takes all that is left of them.
"""

import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median

from benchmarks.report import options, report
from benchmarks.server.load import BATCH_CONNECTIONS, CONNECTIONS, Load, posting
from benchmarks.server.stage import TREE, UNLIMITED, Server, Stage, serving, staged
from storage.postgres.engine import opened_engine
from storage.tenants.projects import create_project
from storage.tenants.setting_changes import apply_settings

_PATH = "/v1/events"
_TURNS = 5
_QUIET_CONNECTIONS = 4
_PAUSE = "function delay() return 30 end\n"
_FLOOD_SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class Flood:
    """What the other project sends.

    Attributes:
        rows: Events a request; 0 asks for a path that is not there.
        limited: Whether it has the limits of a new project, and so is mostly refused.
    """

    what: str
    rows: int
    limited: bool = False

    def load(self, stage: Stage) -> Load:
        """Returns it as wrk sends it."""
        connections = CONNECTIONS if self.rows <= 1 else BATCH_CONNECTIONS
        script = posting(self.rows) if self.rows else ""
        return Load(stage=stage, script=script, connections=connections)

    @property
    def path(self) -> str:
        """Where it goes."""
        return _PATH if self.rows else "/nowhere"


FLOODS = (
    Flood(what="of requests to nowhere", rows=0),
    Flood(what="refused by its rate limit", rows=1, limited=True),
    Flood(what="of single events", rows=1),
    Flood(what="of batches of 100", rows=100),
)


@dataclass(frozen=True, kw_only=True)
class Beside:
    """The quiet project's requests beside a flood.

    Attributes:
        requests_per_second: Of the quiet project.
        alone_p50_ms: Half of its answers came within these milliseconds when it was alone.
        p50_ms: And beside the flood.
        alone_p99_ms: 99 of 100 answers, alone.
        p99_ms: And beside the flood.
        ratio: Of the latter two; the median of the turns.
        failures: Its answers of 400 and more, and broken connections.
    """

    what: str
    requests_per_second: float
    alone_p50_ms: float
    p50_ms: float
    alone_p99_ms: float
    p99_ms: float
    ratio: float
    failures: int


@contextmanager
def flooded(stage: Stage, server: Server, flood: Flood) -> Generator[None]:
    """Lets the stage's project flood the server."""
    command = flood.load(stage).command(server.url + flood.path, seconds=_FLOOD_SECONDS)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def beside(stage: Stage, other: Stage, server: Server, flood: Flood, *, seconds: float) -> Beside:
    """Measures the stage's project alone and beside the other's flood, in turns."""
    quiet = Load(stage=stage, script=_PAUSE + posting(1), connections=_QUIET_CONNECTIONS)
    url = server.url + _PATH
    alone: list[dict[str, float]] = []
    both: list[dict[str, float]] = []
    for _ in range(_TURNS):
        alone.append(quiet.on(url, seconds=seconds))
        with flooded(other, server, flood):
            quiet.on(url, seconds=1)
            both.append(quiet.on(url, seconds=seconds))

    def milliseconds(turns: list[dict[str, float]], member: str) -> float:
        return median(turn[member] for turn in turns) / 1e3

    return Beside(
        what=flood.what,
        requests_per_second=median(turn["requests"] / turn["microseconds"] * 1e6 for turn in both),
        alone_p50_ms=milliseconds(alone, "p50_us"),
        p50_ms=milliseconds(both, "p50_us"),
        alone_p99_ms=milliseconds(alone, "p99_us"),
        p99_ms=milliseconds(both, "p99_us"),
        ratio=median(
            turn["p99_us"] / before["p99_us"] for before, turn in zip(alone, both, strict=True)
        ),
        failures=int(sum(turn["failures"] for turn in alone + both)),
    )


def main() -> None:
    """Measures each flood and prints it."""
    parser = options(__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="of each turn")
    chosen = parser.parse_args()
    rows: list[Beside] = []
    with staged() as stage:
        for number, flood in enumerate(FLOODS):
            with opened_engine(stage.url) as engine, engine.begin() as connection:
                project = create_project(connection, f"flooding-{number}")
                if not flood.limited:
                    apply_settings(connection, project.project_id, UNLIMITED)
            with serving(stage, tree=TREE, label="now", workers=1, stored=True) as server:
                other = replace(stage, project=project)
                rows.append(beside(stage, other, server, flood, seconds=chosen.seconds))
    title = "A quiet project's requests beside another's flood, on one worker; at most 2 times"
    report(rows, _COLUMNS, lines=chosen.lines, title=title)


_COLUMNS: dict[str, Callable[[Beside], str]] = {
    "flood": lambda row: row.what,
    "quiet requests/s": lambda row: f"{row.requests_per_second:.0f}",
    "p50 alone": lambda row: f"{row.alone_p50_ms:.2f} ms",
    "p50 beside": lambda row: f"{row.p50_ms:.2f} ms",
    "p99 alone": lambda row: f"{row.alone_p99_ms:.2f} ms",
    "p99 beside": lambda row: f"{row.p99_ms:.2f} ms",
    "p99 ratio": lambda row: f"{row.ratio:.1f}",
    "failures": lambda row: str(row.failures),
}


if __name__ == "__main__":
    main()
