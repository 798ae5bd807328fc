"""A terminal in which the commands of a page are typed, block after block."""

import os
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from traceback import format_exception

from click.testing import CliRunner

from cli.main import main

# What a shell hands on to our commands.
VARIABLES = (
    "SERVICE_API_URL",
    "SERVICE_PROJECT_KEY",
    "SERVICE_DATABASE_URL",
    "SERVICE_DATA_DIR",
    "SERVICE_SECRET",
)
# To start the command line anew takes most of a second: it runs in the process of the tests. The
# answer is the exit code, what went to stderr, and what to stdout.
COMMAND = """\
#!/bin/bash
printf '%s\\0' {values} "$@" |
  curl --silent --show-error --data-binary @- {url} |
  {{ read -r code; read -r told; base64 --decode <<< "$told" >&2; cat; exit "$code"; }}
"""
TOOLS = ("bash", "base64", "curl")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What people see of a block."""

    text: str
    exit: int


@dataclass(frozen=True, kw_only=True)
class Terminal:
    """A shell in a folder: what a block sets, the next has."""

    folder: Path
    environment: dict[str, str]
    commands: HTTPServer

    def type(self, block: str) -> Seen:
        """Runs the commands of a block up to the first that fails, and returns what people see."""
        script = f'. ./.variables 2>/dev/null || true\ntrap "export -p > .variables" EXIT\n{block}'
        (self.folder / ".variables").touch()
        with (self.folder / ".printed").open("wb+") as printed:
            shell = subprocess.Popen(
                ["bash", "-e", "-a", "-o", "pipefail", "-c", script],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
            )
            # In this thread: commands listen for Ctrl-C, as only a main thread can.
            while shell.poll() is None:
                self.commands.handle_request()
            printed.seek(0)
            return Seen(text=printed.read().decode(), exit=shell.returncode)


@contextmanager
def terminal(folder: Path, **environment: str) -> Generator[Terminal]:
    """A terminal whose `deploy-reward` is ours, in the folder that the tests' process is in too."""
    programs = folder / ".bin"
    programs.mkdir()
    with HTTPServer(("127.0.0.1", 0), _Commands) as server:
        server.timeout = 0.01
        (programs / "deploy-reward").write_text(
            COMMAND.format(
                url=f"http://127.0.0.1:{server.server_port}",
                values=" ".join(f'"${{{name}-}}"' for name in VARIABLES),
            )
        )
        (programs / "deploy-reward").chmod(0o755)
        path = f"{programs}:{os.environ['PATH']}"
        yield Terminal(folder=folder, environment={"PATH": path, **environment}, commands=server)


def has_tools(*more: str) -> bool:
    """Returns whether there is a shell here, and what the commands need."""
    return all(map(shutil.which, (*TOOLS, *more)))


class _Commands(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        *given, _ = body.split("\0")
        values, words = given[: len(VARIABLES)], given[len(VARIABLES) :]
        environment = {name: value or None for name, value in zip(VARIABLES, values, strict=True)}
        done = CliRunner().invoke(main, words, env=environment, prog_name="deploy-reward")
        answer = done.stderr
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            answer += "".join(format_exception(done.exception))
        self.send_response(200)
        self.end_headers()
        errors = b64encode(answer.encode()).decode()
        self.wfile.write(f"{done.exit_code}\n{errors}\n{done.stdout}".encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base's name)
        """Says nothing."""
