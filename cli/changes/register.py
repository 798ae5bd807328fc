"""The command `register`: a change becomes an experiment."""

import json
from pathlib import Path
from typing import Any

import click

from cli.changes.outcome import Exit
from cli.operations.options import MeasureRange, data_dir_option, project_option
from cli.operations.remote import READING_KEY, RemoteFault, decoded, document, remote
from domain.registration import RegistrationAnswer
from domain.wording.registered import (
    attempt_sentence,
    first_look_sentence,
    received_sentence,
    unseen_sentence,
)
from domain.wording.registration import registration_note

_ALONE = f"From its first look on `deploy-reward wait` ends with exit code {Exit.FAULT:d}."


@click.command("register")
@click.option("--commit", "treatment_commit", help="The change; default: the latest deploy's.")
@click.option("--deploy-id", help="The deploy to measure; default: the latest in production.")
@click.option("--metric", help="What the change should lift; default: the project's.")
@click.option(
    "--value", type=MeasureRange(), help="Dollars that a conversion is worth; needs --metric too."
)
@click.option("--control", "control_commit", help="The commit to compare with.")
@click.option("--flag", metavar="NAME=VALUE", help="A feature flag's value, instead of a commit.")
@click.option("--flag-control", metavar="VALUE", help="The flag's value to compare with.")
@click.option("--route", "routes", multiple=True, help="A route whose visitors count; repeatable.")
@click.option(
    "--guardrail",
    "guardrails",
    multiple=True,
    help="A metric that must not suffer, beside the project's; repeatable.",
)
@click.option("--no-guardrails", is_flag=True, help="Watch none, where the project allows it.")
@click.option("--actor", help="Who, or which agent, asks.")
@click.option("--metadata", help="A JSON object to keep with the experiment.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")
@project_option
@data_dir_option
def register(project: str, data_dir: Path, as_json: bool, **chosen: Any) -> None:  # noqa: ANN401 (click's options)
    """Register a change as an experiment and print its id.

    All that is left out takes its default. The same change and metric, while that experiment is
    open, is the same experiment.

    With SERVICE_API_URL the running service is asked, with the project key in
    SERVICE_PROJECT_KEY; without it the store of the data directory, and --project names the
    project.
    """
    members = _members(chosen)
    with remote(READING_KEY, data_dir, project=project) as service:
        experiment_id = document(service.ask("POST", "/v1/reward/register", members))[
            "experiment_id"
        ]
        # Printed at once: the experiment is registered, whatever becomes of the notes.
        click.echo(json.dumps({"experiment_id": experiment_id}) if as_json else experiment_id)
        try:
            answer = service.ask("GET", f"/v1/reward/{experiment_id}/registration")
            registered = decoded(answer.text, RegistrationAnswer)
        except RemoteFault:
            return
        is_default = chosen["metric"] is None
        for note in (
            registration_note(registered),
            None if registered.nothing_to_compare is None else _ALONE,
            f"Its target is {registered.metric}, the project's default." if is_default else None,
            attempt_sentence(registered),
            unseen_sentence(registered),
            received_sentence(registered),
            first_look_sentence(registered),
        ):
            if note is not None:
                click.echo(note, err=True)


def _members(chosen: dict[str, Any]) -> dict[str, object]:
    """Returns the body of the registration, made of the chosen options alone."""
    named = chosen["guardrails"]
    none = chosen["no_guardrails"]
    if none and named:
        raise click.UsageError("--guardrail and --no-guardrails contradict each other")
    members = {
        "treatment_commit": chosen["treatment_commit"],
        "deploy_id": chosen["deploy_id"],
        "control_commit": chosen["control_commit"],
        "target_metric": _metric(chosen["metric"], chosen["value"]),
        "treatment_flag": flag_of(chosen["flag"], chosen["flag_control"]),
        "routes": list(chosen["routes"]) or None,
        "guardrails": ([] if none else list(named) or None),
        "actor": chosen["actor"],
        "metadata": _object(chosen["metadata"]),
    }
    return {name: value for name, value in members.items() if value is not None}


def _metric(metric: str | None, value: float | None) -> object:
    if value is None:
        return metric
    if metric is None:
        raise click.UsageError("--value says what a conversion of --metric is worth: give both")
    return {"name": metric, "value_per_conversion": value}


def flag_of(flag: str | None, control: str | None) -> dict[str, str] | None:
    """Returns the flag of a body, as options name it."""
    if flag is None:
        if control is not None:
            raise click.UsageError("--flag-control is a value of --flag: give both")
        return None
    name, equals, treatment = flag.partition("=")
    if not equals:
        raise click.BadParameter("is not NAME=VALUE", param_hint="--flag")
    members = {"name": name, "treatment": treatment}
    return members if control is None else {**members, "control": control}


def _object(text: str | None) -> object:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        raise click.BadParameter("is not JSON", param_hint="--metadata") from None
