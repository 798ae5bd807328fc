"""Idle: what a running `deploy-reward up` costs in which nothing happens.

Run by `python -m benchmarks.server.idle`, on a machine that does nothing else. Memory is PSS: what
several processes share is divided among them, so that their figures add up.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from own_postgres.server import running_url
from sqlalchemy import text

from benchmarks.report import options, report
from benchmarks.server.running import running_service
from storage.postgres.engine import open_engine

_TICKS = os.sysconf("SC_CLK_TCK")
# By what stands in its command line; what a part starts belongs to it.
_PARTS = {
    "cli up": "supervisor",
    "postgres": "PostgreSQL",
    "cli api": "API",
    "api grpc": "Dagster code server",
    "orchestration.daemon": "Dagster daemon",
    "orchestration.web_server": "Dagster web server",
}
_SIZES = """
SELECT n.nspname AS name, sum(pg_total_relation_size(c.oid))::bigint AS bytes
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm') AND n.nspname IN ('deploy_reward', 'dagster')
GROUP BY n.nspname
UNION ALL SELECT 'whole database', pg_database_size(current_database())
UNION ALL SELECT 'write-ahead log', sum(size)::bigint FROM pg_ls_waldir()
ORDER BY name
"""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the service: a child of the supervisor with all that it started.

    Attributes:
        processes: How many, at the end.
        pss_mib: Their memory, the median of the samples.
        most_pss_mib: The largest sample.
        cpu_percent: Of a single core, on average.
    """

    name: str
    processes: int
    pss_mib: float
    most_pss_mib: float
    cpu_percent: float


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A schema, or what else takes disk.

    Attributes:
        bytes: At the end.
        grown: Since the start, an hour.
    """

    name: str
    bytes: int
    grown: float


@dataclass(frozen=True, kw_only=True)
class _Process:
    pid: int
    parent: int
    command: str
    cpu_seconds: float


def _processes() -> dict[int, _Process]:
    found: dict[int, _Process] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        # Any of them may end while it is looked at.
        with suppress(OSError):
            name, _, rest = (folder / "stat").read_text().rpartition(")")
            fields = rest.split()
            # With its dead children, whose time is nowhere else.
            ticks = sum(int(field) for field in fields[11:15])
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            found[int(folder.name)] = _Process(
                pid=int(folder.name),
                parent=int(fields[1]),
                command=words or name,
                cpu_seconds=ticks / _TICKS,
            )
    return found


def _parts(root: int) -> dict[str, list[_Process]]:
    """The processes below a process, by part."""
    everybody = _processes()
    parts: dict[str, list[_Process]] = {}
    for process in everybody.values():
        line = [process]
        while line[-1].pid != root and line[-1].parent in everybody:
            line.append(everybody[line[-1].parent])
        if line[-1].pid == root:
            # The supervisor itself, or its child above the process.
            top = line[max(0, len(line) - 2)]
            name = next((part for word, part in _PARTS.items() if word in top.command), "other")
            parts.setdefault(name, []).append(process)
    return parts


def _pss_mib(process: _Process) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _cpu(parts: Mapping[str, list[_Process]]) -> dict[str, float]:
    return {name: sum(one.cpu_seconds for one in members) for name, members in parts.items()}


def _sizes(data_dir: Path) -> dict[str, int]:
    engine = open_engine(running_url(data_dir) or "", pool_size=1)
    try:
        with engine.begin() as connection:
            rows = connection.execute(text(_SIZES))
            return {row.name: row.bytes for row in rows}
    finally:
        engine.dispose()


def measure(*, settle_minutes: float, minutes: float) -> tuple[list[Part], list[Disk]]:
    """Starts a service of its own, lets it settle, and watches it.

    Args:
        settle_minutes: How long it runs before.
        minutes: How long it is watched.
    """
    # Root's server runs as nobody, and must pass the folder.
    folder = Path(tempfile.mkdtemp(prefix="deploy-reward-idle-"))
    folder.chmod(0o711)
    try:
        with running_service(folder / "data") as service:
            time.sleep(60 * settle_minutes)
            return _watched(service.pid, folder / "data", minutes=minutes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _watched(root: int, data_dir: Path, *, minutes: float) -> tuple[list[Part], list[Disk]]:
    samples: dict[str, list[float]] = {}
    sizes, before, begun = _sizes(data_dir), _cpu(_parts(root)), time.monotonic()
    parts = _parts(root)
    while time.monotonic() - begun < 60 * minutes:
        time.sleep(min(5.0, 6 * minutes))
        parts = _parts(root)
        for name, members in parts.items():
            samples.setdefault(name, []).append(sum(_pss_mib(one) for one in members))
    seconds, after = time.monotonic() - begun, _cpu(parts)
    return [
        Part(
            name=name,
            processes=len(members),
            pss_mib=sorted(samples[name])[len(samples[name]) // 2],
            most_pss_mib=max(samples[name]),
            cpu_percent=100 * (after[name] - before.get(name, 0.0)) / seconds,
        )
        for name, members in parts.items()
    ], [
        Disk(name=name, bytes=size, grown=(size - sizes[name]) * 3600 / seconds)
        for name, size in _sizes(data_dir).items()
    ]


_PARTS_COLUMNS: dict[str, Callable[[Part], str]] = {
    "part": lambda part: part.name,
    "processes": lambda part: str(part.processes),
    "PSS, MiB": lambda part: f"{part.pss_mib:,.0f}",
    "most": lambda part: f"{part.most_pss_mib:,.0f}",
    "CPU, % of a core": lambda part: f"{part.cpu_percent:.2f}",
}
_DISK_COLUMNS: dict[str, Callable[[Disk], str]] = {
    "disk": lambda disk: disk.name,
    "MiB": lambda disk: f"{disk.bytes / 2**20:,.1f}",
    "growing, KiB an hour": lambda disk: f"{disk.grown / 1024:,.0f}",
}


def main() -> None:
    """Measures, and prints it."""
    parser = options(__doc__)
    parser.add_argument("--settle-minutes", type=float, default=2.0)
    parser.add_argument("--minutes", type=float, default=10.0)
    chosen = parser.parse_args()
    parts, disks = measure(settle_minutes=chosen.settle_minutes, minutes=chosen.minutes)
    total = Part(
        name="all",
        processes=sum(part.processes for part in parts),
        pss_mib=sum(part.pss_mib for part in parts),
        most_pss_mib=sum(part.most_pss_mib for part in parts),
        cpu_percent=sum(part.cpu_percent for part in parts),
    )
    report([*parts, total], _PARTS_COLUMNS, lines=chosen.lines, title="Idle")
    report(disks, _DISK_COLUMNS, lines=chosen.lines, title="Disk of an idle service")


if __name__ == "__main__":
    main()
