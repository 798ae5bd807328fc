"""The command `deploy`: a commit was put before users, or a step of its ramp."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import click

from cli.changes.patch import changed_files, patch_id, reverted
from cli.operations.options import Share, data_dir_option, project_option
from cli.operations.remote import WRITING_KEY, document, remote
from domain.absence import is_null


class _Diff(click.File):
    """A file, or the word for what git finds."""

    def convert(
        self,
        value: Any,  # noqa: ANN401 (click's signature)
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401 (click's signature)
        """Opens a file."""
        return value if value == _BY_GIT else super().convert(value, param, ctx)


class PullRequest(click.ParamType[int | str]):
    """A pull request's number, or its address."""

    name = "number"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        """Reads a number; the service checks an address."""
        del param, ctx
        return int(value) if value.isdecimal() else value


_BY_GIT = "git"
_COMMIT_MEMBERS = ("message", "author", "branch", "url", "actor", "pull_request")


@click.command("deploy")
@click.argument("commit")
@click.option("--environment", help="Where it was put; default: production.")
@click.option(
    "--allocation",
    type=Share(0, 1),
    help="The share of units that the router sends to it: 0 withdrawn, 1 promoted.",
)
@click.option("--base", help="The commit that it was built on; default: what stood before.")
@click.option("--deployed-at", help="When, as RFC 3339; default: now.")
@click.option(
    "--diff",
    type=_Diff(),
    help="GitHub's compare answer (- for stdin), or `git`: what changed since --base, by git here.",
)
@click.option("--graph", type=click.File(), help="The static graph of the build; - for stdin.")
@click.option("--change", "changes", multiple=True, help="A commit it brings; default: itself.")
@click.option("--revert", "reverts", multiple=True, help="A commit it takes back; default: by git.")
@click.option("--message", help="The commit's message.")
@click.option("--author", help="The commit's author.")
@click.option("--branch", help="The commit's branch.")
@click.option("--url", help="Where the commit can be seen.")
@click.option("--pull-request", type=PullRequest(), help="The number or address of its request.")
@click.option("--actor", help="Who, or which agent, made the change.")
@click.option("--idempotency-key", help="Makes a repeated call harmless: a run's id, say.")
@click.option("--json", "as_json", is_flag=True, help="Print the deploy's record.")
@project_option
@data_dir_option
def deploy(
    commit: str,
    idempotency_key: str | None,
    as_json: bool,
    project: str,
    data_dir: Path,
    **chosen: Any,  # noqa: ANN401 (click's options)
) -> None:
    """Record a deploy, or a step of its ramp, and print its id.

    Called again with another --allocation it records a step of the ramp; without it, it ends
    the declaration.

    With SERVICE_API_URL the running service records it: SERVICE_PROJECT_KEY must then hold the
    write key (wk_…), unlike for the other commands, which take the project key. Without it the
    store of the data directory is written, and --project names the project.
    """
    members = _members(commit, chosen)
    headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
    with remote(WRITING_KEY, data_dir, project=project) as service:
        record = document(service.ask("POST", "/v1/deploys", members, headers=headers))["deploy"]
    if as_json:
        click.echo(json.dumps(record))
        return
    click.echo(record["deploy_id"])
    parts = [f"Commit {record['commit']['sha'][:12]} in {record['environment']}"]
    if record["allocation"] is not None:
        parts.append(f"{100 * record['allocation']:g} % of units")
    if record["base_commit"] is not None:
        assumed = " (assumed: name it with --base)" if record["base_assumed"] else ""
        parts.append(f"on {record['base_commit'][:12]}{assumed}")
    if record["affected_routes"]:
        parts.append(f"affects {', '.join(record['affected_routes'])}")
    click.echo("; ".join(parts), err=True)


def _members(commit: str, chosen: Mapping[str, Any]) -> dict[str, object]:
    """Returns the body of the deploy, made of the chosen options alone."""
    described: dict[str, object] = {"sha": commit}
    described |= {name: chosen[name] for name in _COMMIT_MEMBERS if chosen[name] is not None}
    if (identity := patch_id(commit, base=chosen["base"])) is not None:
        described["patch_id"] = identity
    if chosen["changes"]:
        described["changes"] = list(chosen["changes"])
    if reverts := chosen["reverts"] or reverted(commit, base=chosen["base"]):
        described["reverts"] = list(reverts)
    base = chosen["base"]
    by_git = chosen["diff"] == _BY_GIT
    diff = _files_of_git(commit, base) if by_git else _json(chosen["diff"], "--diff")
    if base is not None and (diff is None or isinstance(diff, dict)):
        diff = {**(diff or {}), "base_commit": base}
    members = {
        "commit": described,
        "environment": chosen["environment"],
        "deployed_at": chosen["deployed_at"],
        "allocation": chosen["allocation"],
        "graph": _json(chosen["graph"], "--graph"),
        "diff": diff,
    }
    return {name: value for name, value in members.items() if value is not None}


def _files_of_git(commit: str, base: str | None) -> dict[str, object] | None:
    if base is None:
        raise click.UsageError("--diff git asks for --base: what changed since then")
    if is_null(base):
        # CI writes zeros for what stood before a first or a forced push: nothing is compared.
        return None
    files = changed_files(commit, base=base)
    if files is None:
        raise click.ClickException(
            f"git cannot compare {base} and {commit} here: run it in a checkout that has both"
            " (a shallow clone has the newest commits alone)"
        )
    return {"files": files}


def _json(file: TextIO | None, option: str) -> Any:  # noqa: ANN401 (what JSON says)
    if file is None:
        return None
    try:
        return json.load(file)
    except ValueError as error:
        raise click.BadParameter(f"{file.name} is not JSON", param_hint=option) from error
