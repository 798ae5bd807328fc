"""Routers run by themselves, and the table of docs/routing.md that comes of it."""

import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from benchmarks.outside import routers
from benchmarks.outside.routers import CANARY, STABLE, Ports, Visitors, program, started
from tests.clients.page import DOCS
from tests.processes import nginx
from tests.processes.api_process import eventually, port_of_our_own

pytestmark = [pytest.mark.world, pytest.mark.timeout(900)]

SHARES = (0.005, 0.01, 0.1, 0.5)
VISITORS, NEWCOMERS = 10_000, 500


Process = subprocess.Popen[bytes]


@dataclass(frozen=True, kw_only=True)
class Router:
    """A router with a recipe.

    Attributes:
        reload: Makes it read its configuration again, while the block lasts.
        ours: Whether docs/routing.md shows it, so that it must keep what the page promises.
    """

    words: Sequence[str]
    configuration: Callable[[float, Ports], str]
    version: Sequence[str]
    reload: Callable[[Path, Process], AbstractContextManager[None]]
    shares: Sequence[float] = SHARES
    ours: bool = False


def by_signal(number: signal.Signals) -> Callable[[Path, Process], AbstractContextManager[None]]:
    def reload(_: Path, process: Process) -> AbstractContextManager[None]:
        process.send_signal(number)
        return nullcontext()

    return reload


def by_commands(*lines: str) -> Callable[[Path, Process], AbstractContextManager[None]]:
    def reload(folder: Path, _: Process) -> AbstractContextManager[None]:
        for line in lines:
            subprocess.run(line.replace("{folder}", str(folder)).split(), cwd=folder, check=True)
        return nullcontext()

    return reload


@contextmanager
def by_successor(folder: Path, _: Process) -> Iterator[None]:
    """Envoy's hot restart: another process takes the listener over."""
    words = [*ENVOY, "--restart-epoch", "1", "--drain-time-s", "1", "--parent-shutdown-time-s", "2"]
    with subprocess.Popen(words, cwd=folder) as successor:
        try:
            yield
        finally:
            successor.terminate()


NGINX = ("nginx", "-p", ".", "-c", "conf", "-g", "pid nginx.pid; error_log stderr;")
HAPROXY = ("haproxy", "-W", "-q", "-f", "conf")
ENVOY = ("envoy", "--base-id", "53", "--log-level", "error", "-c", "conf.yaml")
APACHE = ("apache2", "-D", "FOREGROUND", "-d", "{folder}", "-f", "conf")
hashed = partial(routers.haproxy, lines=" balance hdr(x-unit)\n hash-type consistent")
mapped = partial(routers.haproxy, lines=" balance hdr(x-unit)\n hash-type map-based")
cookies = partial(
    routers.haproxy,
    lines=" balance roundrobin\n cookie build insert indirect nocache",
    of_server="cookie {}",
)
haproxy = partial(
    Router, words=HAPROXY, version=["haproxy", "-v"], reload=by_signal(signal.SIGUSR2)
)
envoy = partial(Router, words=ENVOY, version=["envoy", "--version"], reload=by_successor)
caddy = partial(
    Router,
    words=["caddy", "run", "--adapter", "caddyfile", "--config", "conf"],
    version=["caddy", "version"],
    reload=by_commands("caddy reload --force --adapter caddyfile --config conf"),
    shares=(0.5,),
)
ROUTERS = {
    "nginx `split_clients`": Router(
        words=NGINX,
        configuration=routers.nginx,
        version=["nginx", "-v"],
        reload=by_signal(signal.SIGHUP),
        ours=True,
    ),
    "HAProxy, the function": haproxy(configuration=routers.haproxy_function, ours=True),
    "HAProxy `balance hdr`, consistent": haproxy(configuration=hashed),
    "HAProxy `balance hdr`, map-based": haproxy(configuration=mapped),
    "HAProxy `cookie insert`": haproxy(configuration=cookies),
    "Envoy, the function in Lua": envoy(configuration=partial(routers.envoy, lua=True), ours=True),
    "Envoy `use_hash_policy`": envoy(configuration=partial(routers.envoy, lua=False)),
    "Caddy `lb_policy cookie`": caddy(configuration=partial(routers.caddy, policy="cookie build")),
    "Caddy `lb_policy header`": caddy(configuration=partial(routers.caddy, policy="header X-Unit")),
    "Varnish `directors.hash`": Router(
        words=["varnishd"],
        configuration=routers.varnish,
        version=["varnishd", "-V"],
        reload=by_commands(
            "varnishadm -n {folder}/n vcl.load second {folder}/conf",
            "varnishadm -n {folder}/n vcl.use second",
        ),
    ),
    "Apache `stickysession`": Router(
        words=APACHE,
        configuration=routers.apache,
        shares=SHARES[1:],
        version=["apache2", "-v"],
        reload=by_signal(signal.SIGUSR1),
    ),
}
COLUMNS = [
    "router",
    *("0.5 %", "1 %", "10 %", "50 %"),
    "leave it, and join it, at 10 → 15 %",
    "in it once it is taken back",
    "a visitor without a cookie",
    "a reload",
]
ROWS: dict[str, str] = {}


@pytest.mark.parametrize("name", ROUTERS)
def test_a_router_keeps_its_visitors(name, tmp_path) -> None:
    router = ROUTERS[name]
    with ExitStack() as stack:
        names = ("router", "commands", "canary", "stable")
        ports = Ports(**{name: stack.enter_context(port_of_our_own()) for name in names})
        builds = "".join(
            f'server {{ listen 127.0.0.1:{port}; location / {{ return 200 "{commit}"; }} }}'
            for port, commit in ((ports.canary, CANARY), (ports.stable, STABLE))
        )
        (tmp_path / "builds").mkdir()
        stack.enter_context(nginx.nginx(tmp_path / "builds", builds, answers=lambda: True))
        measured = measure(router, tmp_path, ports)
    if router.ours:
        for share, members in measured.members.items():
            # Four standard errors.
            assert (
                abs(sum(members) / VISITORS - share) < 4 * (share * (1 - share) / VISITORS) ** 0.5
            )
        assert (measured.left, measured.back, measured.reloaded) == (0, 0, 0)
        assert measured.newcomer.startswith("kept")
    ROWS[name] = measured.row(name, version_of(router))


@dataclass(kw_only=True)
class Measured:
    """What became of visitors; `left` and `back` count those who left the canary, or stayed."""

    members: dict[float, list[bool]]
    left: int | None
    joined: int
    back: int
    newcomer: str
    reloaded: int

    def row(self, name: str, version: str) -> str:
        shown = [
            f"{sum(self.members[share]) / VISITORS:.2%}" if share in self.members else "–"
            for share in SHARES
        ]
        left = (
            "–" if self.left is None else f"{self.left} of {sum(self.members[0.1])}, {self.joined}"
        )
        cells = [f"{name} ({version})", *shown, left, f"{self.back}", self.newcomer]
        cells += [f"{self.reloaded} leave"]
        return f"| {' | '.join(cells)} |\n"


def measure(router: Router, folder: Path, ports: Ports) -> Measured:
    members = {}
    for share in router.shares:
        with placed(router, folder, share, ports):
            members[share] = Visitors(VISITORS).builds(ports.router)
    newcomer = newcomers(router, folder, ports)
    visitors, steps = Visitors(VISITORS), []
    for share in (0.1, 0.15) if 0.1 in members else ():
        with placed(router, folder, share, ports):
            steps.append(visitors.builds(ports.router))
    left = leavers(*steps) if steps else None
    joined = leavers(*reversed(steps)) if steps else 0
    again = Visitors(VISITORS)
    with placed(router, folder, 0.1 if steps else 0.5, ports) as process:
        before = again.builds(ports.router)
        write(router, folder, 0.5, ports)
        with router.reload(folder, process):
            eventually(lambda: is_wider(ports.router), seconds=60)
            reloaded = leavers(before, again.builds(ports.router))
    with placed(router, folder, 0, ports):
        back = sum(visitors.builds(ports.router))
    return Measured(
        members=members, left=left, joined=joined, back=back, newcomer=newcomer, reloaded=reloaded
    )


def leavers(before: Sequence[bool], after: Sequence[bool]) -> int:
    return sum(was and not is_in for was, is_in in zip(before, after, strict=True))


def is_wider(port: int) -> bool:
    """Whether the new share is there; a reload may end a connection under way."""
    try:
        return sum(Visitors(NEWCOMERS).builds(port)) > 0.3 * NEWCOMERS
    except ConnectionError:
        return False


def newcomers(router: Router, folder: Path, ports: Ports) -> str:
    with placed(router, folder, 0.5, ports):
        alone, kept = Visitors(NEWCOMERS, known=False), Visitors(NEWCOMERS, known=False)
        # A single request between, since taking turns looks the same each time.
        first, _, again = (
            each.builds(ports.router, keep=False) for each in (alone, Visitors(1), alone)
        )
        before, _, after = (each.builds(ports.router) for each in (kept, Visitors(1), kept))
    if before == after and all(kept.cookies):
        return "kept by the cookie that it gets"
    if first == again and len({*first}) == 1:
        return f"always the {'canary' if first[0] else 'stable build'}"
    return "drawn at each request"


def write(router: Router, folder: Path, share: float, ports: Ports) -> None:
    for name in ("conf", "conf.yaml"):
        (folder / name).write_text(router.configuration(share, ports))


def placed(
    router: Router, folder: Path, share: float, ports: Ports
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    write(router, folder, share, ports)
    words = [word.replace("{folder}", str(folder)) for word in router.words]
    if words == ["varnishd"]:
        modules = program("varnishd").parents[1] / "lib/x86_64-linux-gnu/varnish"
        words += [
            "-F",
            "-a",
            f"127.0.0.1:{ports.router}",
            "-f",
            f"{folder}/conf",
            "-n",
            f"{folder}/n",
        ]
        words += ["-j", "none", "-p", f"vmod_path={modules}/vmods"]
    return started(words, folder, ports.router)


def version_of(router: Router) -> str:
    done = subprocess.run(router.version, capture_output=True, text=True, check=False)
    return re.findall(r"\d+\.\d+\.\d+", done.stdout + done.stderr)[0]


def test_the_page_has_the_table() -> None:
    if len(ROWS) < len(ROUTERS):
        pytest.skip("not every router is here")
    path = DOCS / "routing.md"
    head = f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}\n"
    table = head + "".join(ROWS[name] for name in ROUTERS)
    shown = re.sub(
        r"(?<=<!-- routers -->\n).*(?=<!-- end -->)", table, path.read_text(), flags=re.DOTALL
    )
    path.write_text(shown)
