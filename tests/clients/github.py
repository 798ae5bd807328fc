"""A GitHub of a test: answers in the shapes of its REST and GraphQL API, and remembers requests."""

import json
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse

from tests.processes.served import address_of, serving_routes

REPOSITORY = "acme/shop"
TOKEN = "ghs_of_the_job"  # noqa: S105 (a test's)
_CONCLUSIONS = {"success", "failure", "neutral", "cancelled", "timed_out", "action_required"}


def _branch(number: int) -> str:
    """The branch of a pull request: Git allows in a name what addresses have a use for."""
    return f"fix/a&b#{number}+c%41"


def _head_of_revert(pull: dict[str, Any]) -> str:
    return f"acme:revert-{pull['number']}-{pull['head']['ref']}"


@dataclass(kw_only=True)
class Commit:
    """A commit of the repository, and the pull request that brought it."""

    sha: str
    parent: str | None = None
    message: str = "Order in one step"
    pull: int | None = None


@dataclass(kw_only=True)
class GitHub:
    """A repository with its commits, comments, checks and pull requests.

    Attributes:
        reverts: Inputs of `revertPullRequest`.
        refused: Paths that this job's token may not use.
    """

    url: str
    commits: dict[str, Commit] = field(default_factory=dict)
    merged: set[int] = field(default_factory=set)
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    checks: dict[int, dict[str, Any]] = field(default_factory=dict)
    reverts: list[dict[str, Any]] = field(default_factory=list)
    refused: tuple[str, ...] = ()

    def push(self, sha: str, **members: Any) -> Commit:
        """A commit on top of the last, merged by its pull request where it has it."""
        parent = next(reversed(self.commits), None)
        commit = Commit(**{"sha": sha, "parent": parent, **members})
        self.commits[sha] = commit
        if commit.pull is not None:
            self.merged.add(commit.pull)
        return commit

    def answer(self, method: str, target: str, body: Any) -> tuple[int, Any]:
        self.asked.append((method, target, body))
        parts = urlsplit(target)
        if parts.path == "/graphql":
            return self._graphql(body)
        path = parts.path.removeprefix(f"/repos/{REPOSITORY}")
        if any(path.startswith(beginning) for beginning in self.refused):
            return 403, {"message": "Resource not accessible by integration", "status": "403"}
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        for expected, pattern, handler in self._ways():
            if method == expected and (match := re.fullmatch(pattern, path)):
                return handler(match.groups(), query, body)
        return 404, {"message": "Not Found", "status": "404"}

    def _ways(self) -> list[tuple[str, str, Callable[..., tuple[int, Any]]]]:
        return [
            ("GET", r"/commits/(\w{40})", self._commit),
            ("GET", r"/commits/(\w{40})/pulls", self._pulls_of),
            ("GET", r"/commits/(\w{40})/check-runs", self._checks_of),
            ("GET", r"/compare/(\w{40})\.\.\.(\w{40})", self._compare),
            ("GET", r"/issues/(\d+)/comments", self._list_comments),
            ("POST", r"/issues/(\d+)/comments", self._comment),
            ("PATCH", r"/issues/comments/(\d+)", self._edit_comment),
            ("POST", r"/check-runs", self._create_check),
            ("PATCH", r"/check-runs/(\d+)", self._update_check),
            ("GET", r"/pulls", self._pulls),
        ]

    def _commit(self, words: tuple[str], _: Any, __: Any) -> tuple[int, Any]:
        if words[0] not in self.commits:
            return 422, {"message": f"No commit found for SHA: {words[0]}"}
        commit = self.commits[words[0]]
        return 200, {
            "sha": commit.sha,
            "html_url": f"https://github.example/{REPOSITORY}/commit/{commit.sha}",
            "commit": {"message": commit.message, "author": {"name": "Ada"}},
            "author": {"login": "ada"},
            "parents": [] if commit.parent is None else [{"sha": commit.parent}],
        }

    def _pull(self, number: int) -> dict[str, Any]:
        return {
            "number": number,
            "node_id": f"PR_{number}",
            "title": f"Change {number}",
            "state": "closed" if number in self.merged else "open",
            "merged_at": "2026-11-23T09:00:00Z" if number in self.merged else None,
            "head": {"ref": _branch(number), "label": f"acme:{_branch(number)}"},
        }

    def _pulls_of(self, words: tuple[str], _: Any, __: Any) -> tuple[int, Any]:
        commit = self.commits.get(words[0])
        return 200, [] if commit is None or commit.pull is None else [self._pull(commit.pull)]

    def _pulls(self, _: Any, query: dict[str, str], __: Any) -> tuple[int, Any]:
        pulls = [self._pull(commit.pull) for commit in self.commits.values() if commit.pull]
        if query["head"] not in map(_head_of_revert, pulls):
            return 422, {"message": f"Nobody asks for {query['head']}"}
        asked = query["head"] in map(_head_of_revert, self._asked())
        return 200, [{"number": 900}] if asked else []

    def _asked(self) -> list[dict[str, Any]]:
        return [self._pull(int(made["pullRequestId"][3:])) for made in self.reverts]

    def _compare(self, words: tuple[str, str], _: Any, __: Any) -> tuple[int, Any]:
        base, head = words
        if base not in self.commits or head not in self.commits:
            return 404, {"message": "Not Found"}
        order = list(self.commits)
        ahead = order.index(head) - order.index(base)
        status = "ahead" if ahead > 0 else "behind" if ahead < 0 else "identical"
        return 200, {
            "status": status,
            "ahead_by": max(ahead, 0),
            "base_commit": {"sha": base, "commit": {"message": "Open the shop"}},
            "commits": [{"sha": sha} for sha in order[order.index(base) + 1 :]],
            "files": [{"filename": "app/page.tsx", "status": "modified", "sha": "0c"}],
        }

    def _list_comments(self, words: tuple[str], query: Any, _: Any) -> tuple[int, Any]:
        size, page = int(query["per_page"]), int(query["page"])
        return 200, self.comments.get(int(words[0]), [])[size * (page - 1) : size * page]

    def _comment(self, words: tuple[str], _: Any, body: Any) -> tuple[int, Any]:
        listed = self.comments.setdefault(int(words[0]), [])
        made = {"id": 1000 + sum(map(len, self.comments.values())), "body": body["body"]}
        listed.append(made)
        return 201, made

    def _edit_comment(self, words: tuple[str], _: Any, body: Any) -> tuple[int, Any]:
        for listed in self.comments.values():
            for comment in listed:
                if comment["id"] == int(words[0]):
                    comment["body"] = body["body"]
                    return 200, comment
        return 404, {"message": "Not Found"}

    def _checks_of(self, words: tuple[str], query: Any, _: Any) -> tuple[int, Any]:
        runs = [
            run
            for run in self.checks.values()
            if run["head_sha"] == words[0] and run["name"] == query["check_name"]
        ]
        return 200, {"total_count": len(runs), "check_runs": runs}

    def _create_check(self, _: Any, __: Any, body: Any) -> tuple[int, Any]:
        if (fault := _check_fault(body, {"name", "head_sha"})) is not None:
            return 422, {"message": fault}
        number = len(self.checks) + 1
        self.checks[number] = {"id": number, **body}
        return 201, self.checks[number]

    def _update_check(self, words: tuple[str], _: Any, body: Any) -> tuple[int, Any]:
        if (fault := _check_fault(body, set())) is not None:
            return 422, {"message": fault}
        self.checks[int(words[0])] |= body
        return 200, self.checks[int(words[0])]

    def _graphql(self, body: Any) -> tuple[int, Any]:
        given = body["variables"]["input"]
        number = int(given["pullRequestId"].removeprefix("PR_"))
        if "revertPullRequest(input: $input)" not in body["query"] or number not in self.merged:
            return 200, {"errors": [{"type": "UNPROCESSABLE", "message": "it can't be reverted"}]}
        self.reverts.append(given)
        url = f"https://github.example/{REPOSITORY}/pull/900"
        return 200, {
            "data": {"revertPullRequest": {"revertPullRequest": {"number": 900, "url": url}}}
        }


def _check_fault(body: dict[str, Any], needed: set[str]) -> str | None:
    """What GitHub would refuse of a check run."""
    known = {
        *("name", "head_sha", "external_id", "details_url", "status", "conclusion", "output"),
        *("started_at", "completed_at", "actions"),
    }
    if not needed <= body.keys() <= known:
        return "Invalid request."
    if (body["status"] == "completed") != (body.get("conclusion") in _CONCLUSIONS):
        return "a completed run has a conclusion, and no other"
    if not {"title", "summary"} <= body["output"].keys() or len(body["output"]["summary"]) > 65535:
        return "the output needs a title, and a summary of at most 65535 characters"
    return None


@contextmanager
def serving_github() -> Generator[GitHub]:
    async def respond(request: Request) -> JSONResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return JSONResponse({"message": "Bad credentials"}, 401)
        body = await request.body()
        document = json.loads(body) if body else None
        status, answer = github.answer(request.method, address_of(request), document)
        return JSONResponse(answer, status)

    with serving_routes(respond) as url:
        github = GitHub(url=url)
        yield github
