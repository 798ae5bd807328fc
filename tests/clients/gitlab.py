"""A GitLab of a test: merge requests by commit, and their notes, in the shapes of its API."""

import json
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

PROJECT = "42"
TOKEN = "glpat-of_the_project"  # noqa: S105 (a test's)


@dataclass(kw_only=True)
class GitLab:
    """A project with its merge requests by commit, and the notes on each."""

    url: str
    merge_requests: dict[str, int] = field(default_factory=dict)
    notes: dict[int, list[str]] = field(default_factory=dict)

    def answer(self, method: str, path: str, form: dict[str, list[str]]) -> tuple[int, Any]:
        """The status and document of an answer."""
        project = f"/api/v4/projects/{PROJECT}"
        commit = re.fullmatch(rf"{project}/repository/commits/(\w{{40}})/merge_requests", path)
        if method == "GET" and commit:
            number = self.merge_requests.get(commit[1])
            return 200, [] if number is None else [{"iid": number, "state": "merged"}]
        noted = re.fullmatch(rf"{project}/merge_requests/(\d+)/notes", path)
        if method == "POST" and noted and "body" in form:
            self.notes.setdefault(int(noted[1]), []).append(form["body"][0])
            return 201, {"id": 1, "body": form["body"][0]}
        return 404, {"message": "404 Not Found"}


@contextmanager
def serving_gitlab() -> Generator[GitLab]:
    """A GitLab behind a port, for as long as the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            if self.headers.get("PRIVATE-TOKEN") != TOKEN:
                status, document = 401, {"message": "401 Unauthorized"}
            else:
                status, document = gitlab.answer(self.command, self.path, parse_qs(text))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def do_GET(self) -> None:
            self.respond()

        def do_POST(self) -> None:
            self.respond()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (http.server's)
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    gitlab = GitLab(url=f"http://127.0.0.1:{server.server_address[1]}/api/v4")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield gitlab
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
