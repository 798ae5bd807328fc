"""Routers by themselves: each with its configuration of a share, as docs/routing.md has it."""

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.clients.page import example
from tests.processes.api_process import eventually

TYPES = "type.googleapis.com/envoy.extensions.filters"
CANARY, STABLE = "4f2a9c1d", "9b1c5d7e"


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The addresses of a router, for visitors and for commands, and of the builds."""

    router: int
    commands: int
    canary: int
    stable: int


def weights(share: float, total: int = 200) -> tuple[int, int]:
    """Weights of a share, of the same sum at each: with another, a hash takes visitors out."""
    return round(share * total), total - round(share * total)


def nginx(share: float, ports: Ports) -> str:
    shown = example("nginx.conf")
    line = f"    {share:%}  {CANARY};\n".replace("0000%", "%") if share else ""
    shown = re.sub(r"    10%  \w+;\n", line, shown)
    return f"daemon off; events {{}} http {{ access_log off;\n{placed(shown, ports)}\n}}"


def haproxy_function(share: float, ports: Ports) -> str:
    shown = example("haproxy.cfg")
    return TIMEOUTS + placed(shown.replace("429496730", str(round(share * 2**32))), ports)


TIMEOUTS = "defaults\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n"


def haproxy(share: float, ports: Ports, *, lines: str, of_server: str = "") -> str:
    canary, stable = weights(share)
    servers = {"a": (ports.canary, canary), "b": (ports.stable, stable)}
    rows = (
        f" server {name} 127.0.0.1:{port} weight {weight} {of_server.format(name)}\n"
        for name, (port, weight) in servers.items()
        if weight
    )
    bound = f"listen shop\n mode http\n bind 127.0.0.1:{ports.router}\n{lines}\n"
    return TIMEOUTS + bound + "".join(rows)


def envoy(share: float, ports: Ports, *, lua: bool) -> str:
    if lua:
        script = example("envoy.lua")
        script = re.sub(r'= "4f2a9c1d", 0.1', f'= "{CANARY}", {share}', script)
        indented = "".join(f"                  {row}\n" for row in script.splitlines())
        filters = f"""
          - name: envoy.filters.http.lua
            typed_config:
              "@type": {TYPES}.http.lua.v3.Lua
              default_source_code:
                inline_string: |
{indented}"""
        rows = example("envoy-routes.yaml").splitlines()
        routes = "".join(f"              {row}\n" for row in rows)
    else:
        filters = ""
        canary, stable = weights(share)
        routes = f"""              routes:
              - match: {{ prefix: "/" }}
                route:
                  hash_policy: [{{ cookie: {{ name: session }} }}]
                  weighted_clusters:
                    use_hash_policy: true
                    clusters:
                    - {{ name: canary, weight: {canary} }}
                    - {{ name: stable, weight: {stable} }}
"""
    clusters = "".join(
        f"""
  - name: {name}
    connect_timeout: 5s
    load_assignment:
      cluster_name: {name}
      endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {{ socket_address: {{
        address: 127.0.0.1, port_value: {port} }} }} }} }}] }}]"""
        for name, port in (("canary", ports.canary), ("stable", ports.stable))
    )
    return f"""static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {ports.router} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": {TYPES}.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: shop
          route_config:
            virtual_hosts:
            - name: shop
              domains: ["*"]
{routes}          http_filters:{filters}
          - name: envoy.filters.http.router
            typed_config:
              "@type": {TYPES}.http.router.v3.Router
  clusters:{clusters}
"""


def caddy(share: float, ports: Ports, *, policy: str) -> str:
    builds = f"127.0.0.1:{ports.canary} " if share else ""
    return f"""{{
        admin 127.0.0.1:{ports.commands}
        auto_https off
    }}
    http://:{ports.router} {{
        reverse_proxy {builds}127.0.0.1:{ports.stable} {{
            lb_policy {policy}
        }}
    }}
"""


def varnish(share: float, ports: Ports) -> str:
    canary, stable = weights(share)
    return f"""vcl 4.1;
import directors;
backend canary {{ .host = "127.0.0.1"; .port = "{ports.canary}"; }}
backend stable {{ .host = "127.0.0.1"; .port = "{ports.stable}"; }}
sub vcl_init {{
    new builds = directors.hash();
    builds.add_backend(canary, {canary});
    builds.add_backend(stable, {stable});
}}
sub vcl_recv {{
    set req.backend_hint = builds.backend(regsub(req.http.Cookie, "^.*session=([^;]*).*$", "\\1"));
    return (pass);
}}
"""


def apache(share: float, ports: Ports) -> str:
    canary, stable = weights(share, 100)
    modules = program("apache2").parents[1] / "lib/apache2/modules"
    names = ("mpm_event", "authz_core", "headers", "slotmem_shm", "proxy", "proxy_http")
    loaded = "\n".join(
        f"LoadModule {name}_module {modules}/mod_{name}.so"
        for name in (*names, "proxy_balancer", "lbmethod_byrequests")
    )
    members = "".join(
        f"BalancerMember http://127.0.0.1:{port} route={name} loadfactor={weight}\n"
        for name, port, weight in (("a", ports.canary, canary), ("b", ports.stable, stable))
        if weight
    )
    return f"""{loaded}
ServerName shop
User nobody
Group nogroup
PidFile apache.pid
DefaultRuntimeDir .
ErrorLog /dev/stderr
Listen 127.0.0.1:{ports.router}
MaxKeepAliveRequests 0
Header add Set-Cookie "build=.%{{BALANCER_WORKER_ROUTE}}e; path=/" env=BALANCER_ROUTE_CHANGED
<Proxy balancer://builds>
{members}ProxySet stickysession=build
</Proxy>
ProxyPass / balancer://builds/
"""


def placed(shown: str, ports: Ports) -> str:
    """The page's configuration on ports of a test."""
    shown = re.sub(r"(listen |bind :)8080", rf"\g<1>{ports.router}", shown)
    return shown.replace(":3001", f":{ports.canary}").replace(":3000", f":{ports.stable}")


def program(name: str) -> Path:
    """Returns the path of a program; skips the test where it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return Path(found)


@contextmanager
def started(words: Sequence[str], folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A router that answers at its port; the test is skipped where the program is not here."""
    program(words[0])
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(words, cwd=folder, stdout=output, stderr=output)

    def listens() -> bool:
        assert process.poll() is None, (folder / "output").read_text()[-2000:]
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0

    try:
        eventually(listens)
        yield process
    finally:
        process.terminate()
        process.wait(60)


class Visitors:
    """Visitors at a router, many over a single connection; each keeps the cookies it is given."""

    def __init__(self, number: int, *, known: bool = True) -> None:
        named = [{"session": f"s-{each}"} for each in range(number)]
        self.cookies = named if known else [{} for _ in named]

    def builds(self, port: int, *, keep: bool = True) -> list[bool]:
        """Returns whether each got the canary."""
        result: list[bool] = []
        # nginx closes a connection after a thousand requests.
        for first in range(0, len(self.cookies), 500):
            with (
                socket.create_connection(("127.0.0.1", port), timeout=60) as line,
                line.makefile("rb") as answers,
            ):
                for start in range(first, min(first + 500, len(self.cookies)), 50):
                    some = self.cookies[start : start + 50]
                    line.sendall(b"".join(map(_request, some)))
                    for cookies in some:
                        build, given = _answer(answers)
                        assert build in (CANARY, STABLE), build
                        result.append(build == CANARY)
                        if keep:
                            cookies.update(given)
        return result


def _request(cookies: dict[str, str]) -> bytes:
    named = "; ".join(f"{name}={value}" for name, value in cookies.items())
    unit = cookies.get("session", "")
    header = f"Cookie: {named}\r\nX-Unit: {unit}\r\n" if named else ""
    return f"GET / HTTP/1.1\r\nHost: shop\r\n{header}\r\n".encode()


def _answer(lines: BinaryIO) -> tuple[str, dict[str, str]]:
    status = lines.readline()
    if not status:
        raise ConnectionResetError
    assert status.split()[1] == b"200", status
    given, length = {}, 0
    while (line := lines.readline().decode().strip()) != "":
        name, _, value = line.partition(": ")
        if name.lower() == "content-length":
            length = int(value)
        if name.lower() == "set-cookie":
            cookie, _, kept = value.partition(";")[0].partition("=")
            given[cookie] = kept
    return lines.read(length).decode(), given
