"""A GitLab of a test: merge requests by commit, and their notes, in the shapes of its API."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import JSONResponse

from tests.processes.served import address_of, serving_routes

PROJECT = "42"
TOKEN = "glpat-of_the_project"  # noqa: S105 (a test's)


@dataclass(kw_only=True)
class GitLab:
    """A project with its merge requests by commit, and the notes on each."""

    url: str
    merge_requests: dict[str, int] = field(default_factory=dict)
    notes: dict[int, list[str]] = field(default_factory=dict)

    def answer(self, method: str, path: str, form: dict[str, list[str]]) -> tuple[int, Any]:
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
    async def respond(request: Request) -> JSONResponse:
        if request.headers.get("PRIVATE-TOKEN") != TOKEN:
            return JSONResponse({"message": "401 Unauthorized"}, 401)
        form = parse_qs((await request.body()).decode())
        status, answer = gitlab.answer(request.method, address_of(request), form)
        return JSONResponse(answer, status)

    with serving_routes(respond) as url:
        gitlab = GitLab(url=f"{url}/api/v4")
        yield gitlab
