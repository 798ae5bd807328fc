"""The command `withdraw`: a deploy that was recorded by mistake is taken back."""

from pathlib import Path

import click

from cli.operations.options import data_dir_option, project_option
from cli.operations.remote import WRITING_KEY, document, remote


@click.command("withdraw")
@click.argument("deploy_id")
@project_option
@data_dir_option
def withdraw(deploy_id: str, project: str, data_dir: Path) -> None:
    """Withdraw a deploy that was recorded by mistake.

    It is refused while an experiment rests on the deploy. DEPLOY_ID is what `deploy` printed
    (dep_…). Posted again, the same deploy is a new deploy. With SERVICE_API_URL the running service
    is asked, with the write key in SERVICE_PROJECT_KEY; without it the store of the data directory
    is written, and --project names the project.
    """
    with remote(WRITING_KEY, data_dir, project=project) as service:
        record = document(service.ask("DELETE", f"/v1/deploys/{deploy_id}"))["deploy"]
    commit = record["commit"]["sha"][:12]
    click.echo(f"Withdrew the deploy of commit {commit} in {record['environment']}.")
