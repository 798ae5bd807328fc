"""The client's distribution: it installs small, and holds no part of the service that it asks."""

import json
import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.main import COMMANDS
from storage.tenants.keys import KeyKind
from tests.cli.conftest import serving
from tests.processes.registry import last_line

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "packaging" / "client"
SHA = "c1" * 20
HELD = {
    "plan",
    "portfolio",
    "deploy",
    "withdraw",
    "register",
    "list",
    "place",
    "wait",
    "explain",
    "verify",
    "doctor",
    "close",
    "mcp",
}
# 9 MB of files, and the bytecode that an installer writes beside each module.
MOST_BYTES = 22_000_000


def described(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built by the back end that the gate's own environment holds."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", *build, "--wheel-dir", str(folder), str(CLIENT)], check=True
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def client(wheel, tmp_path_factory) -> Path:
    """A virtual environment with the wheel and what it names, from the registry or pip's cache."""
    folder = tmp_path_factory.mktemp("client")
    venv.create(folder)
    pip = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet"]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    done = subprocess.run(
        [*pip, *constraints, str(wheel)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"the client's four dependencies can't be had: {last_line(done.stderr)}")
    return folder


@pytest.fixture(scope="session")
def run(client) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the client's command line, away from the source tree."""

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [client / "bin" / "deploy-reward", *words],
            cwd=client,
            env={"PATH": os.environ["PATH"], "COLUMNS": "200", **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_it_asks_for_nothing_that_the_service_does_not_ask_for() -> None:
    ours, service = described(CLIENT), described(ROOT)
    for needed in [*ours["dependencies"], *ours["optional-dependencies"]["mcp"]]:
        assert needed in service["dependencies"]
    assert ours["requires-python"] == service["requires-python"]
    assert ours["scripts"] == service["scripts"]


def test_its_wheel_holds_the_commands_that_speak_http_and_no_room_of_the_service(wheel) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    rooms = {name.split("/")[0] for name in names if name.endswith(".py")}
    assert rooms == {"cli", "domain", "mcp_server"}
    held = {
        command
        for command, place in COMMANDS.items()
        if f"{place.split(':')[0].replace('.', '/')}.py" in names
    }
    assert held == HELD
    assert f"-{described(ROOT)['version']}-" in wheel.name


@pytest.mark.nightly
def test_it_installs_small_and_pulls_no_package_of_the_service(client) -> None:
    (packages,) = client.glob("lib/python3*/site-packages")
    installed = list(packages.iterdir())
    names = {entry.name.split("-")[0].lower() for entry in installed}
    heavy = {"dagster", "fastapi", "sqlalchemy", "pandas", "numpy", "scipy", "duckdb", "pyarrow"}
    assert not names & (heavy | {"mcp", "pydantic", "psycopg", "cryptography"})
    files = [
        file
        for entry in installed
        for file in ([entry] if entry.is_file() else entry.rglob("*"))
        if file.is_file()
    ]
    assert sum(file.stat().st_size for file in files) < MOST_BYTES


def test_its_help_lists_its_commands_alone(run) -> None:
    shown = run("--help").stdout
    listed = {line.split()[0] for line in shown.partition("Changes:")[2].splitlines() if line}
    assert listed >= HELD
    # A group of which the client holds nothing has no heading.
    assert "Operation:" not in shown
    assert "rebuild" not in shown


def test_a_command_of_the_service_says_where_it_is(run) -> None:
    done = run("rebuild")
    assert done.returncode == 2
    assert "rebuild is a command of the service: install deploy-reward" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["wait", "exp_1"],
        ["deploy", SHA],
        ["register"],
        ["doctor"],
        ["withdraw", "dep_1"],
        ["portfolio"],
    ],
)
def test_without_an_address_it_says_that_it_has_no_store(run, words) -> None:
    done = run(*words)
    assert done.returncode == 1
    assert done.stderr == (
        "Error: SERVICE_API_URL is not set: the client asks a running service, and has no store\n"
    )


def test_without_the_sdk_of_mcp_it_says_how_to_get_it(run) -> None:
    done = run("mcp")
    assert done.returncode == 1
    assert "install deploy-reward-client[mcp]" in done.stderr


def test_it_plans_without_a_service(run) -> None:
    done = run("plan", "--sessions-per-day", "24000", "--rate", "0.05", "--share", "0.5", "--json")
    assert json.loads(done.stdout)["lifts"][3]["days_to_decide"] == pytest.approx(1.3, abs=0.2)


def test_it_posts_registers_and_waits_against_a_running_service(run, tenant) -> None:
    keys = tenant.project.keys
    with serving(tenant) as url:
        writing = {"SERVICE_API_URL": url, "SERVICE_PROJECT_KEY": keys[KeyKind.WRITE]}
        reading = {"SERVICE_API_URL": url, "SERVICE_PROJECT_KEY": keys[KeyKind.PROJECT]}
        deployed = run("deploy", SHA, "--allocation", "0.1", **writing)
        assert deployed.stdout.startswith("dep_"), deployed.stderr
        registered = run("register", "--commit", SHA, "--metric", "activation", **reading)
        experiment = registered.stdout.strip()
        waited = run("wait", experiment, "--timeout", "0", "--json", **reading)
        assert waited.returncode == 14, waited.stderr
        assert json.loads(waited.stdout)["experiment_id"] == experiment
        assert run("doctor", "--json", **reading).returncode in (0, 1)
        assert "nothing to compare it with" in run("explain", experiment, **reading).stdout
        closed = run("close", experiment, **reading)
        assert "will be decided without a verdict" in closed.stdout
        withdrawn = run("withdraw", deployed.stdout.strip(), **writing)
        assert withdrawn.stderr.startswith("Error: "), "an experiment rests on it"
