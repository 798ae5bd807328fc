"""`explain`: an experiment's evidence as a sentence and a table."""

import json
import os
from pathlib import Path
from typing import Any

import click
import httpx2
from rich.console import Console
from rich.table import Table

from cli.store import data_dir_option, store_transaction
from storage.verdicts import read_any_evidence

_TIMEOUT_SECONDS = 10.0


@click.command()
@click.argument("experiment")
@click.option("--json", "as_json", is_flag=True, help="Print the evidence document.")
@data_dir_option
def explain(experiment: str, as_json: bool, data_dir: Path) -> None:
    """Say what is behind a verdict."""
    text = _evidence_text(experiment, data_dir)
    if as_json:
        click.echo(text)
        return
    _print(json.loads(text))


def _evidence_text(experiment: str, data_dir: Path) -> str:
    """Returns the evidence, over HTTP where an address is set, else from the store."""
    if address := os.environ.get("SERVICE_API_URL"):
        return _fetched(address, experiment)
    with store_transaction(data_dir) as connection:
        text = read_any_evidence(connection, experiment)
    if text is None:
        raise click.ClickException("nothing was evaluated yet: no block of units has closed")
    return text


def _fetched(address: str, experiment: str) -> str:
    try:
        answer = httpx2.get(
            f"{address.rstrip('/')}/v1/reward/{experiment}/evidence",
            headers={"X-Service-Project-Key": os.environ.get("SERVICE_PROJECT_KEY", "")},
            timeout=_TIMEOUT_SECONDS,
        )
    except httpx2.HTTPError as error:
        raise click.ClickException(f"{address} does not answer: {error}") from error
    if answer.is_error:
        detail = answer.json().get("detail") if "json" in answer.headers["content-type"] else None
        raise click.ClickException(detail or f"{address} answered {answer.status_code}")
    return answer.text


def _print(document: dict[str, Any]) -> None:
    console = Console()
    console.print(f"[bold]{document['sentence']}[/bold]", highlight=False)
    if document["as_of"] is None:
        return
    arms = Table(title=f"As of {document['as_of']}")
    for column in ("arm", "units", "conversions", "rate", "late"):
        arms.add_column(column, justify="left" if column == "arm" else "right")
    for name in ("control", "treatment"):
        arm = document["arms"][name]
        rate = "" if arm["rate"] is None else f"{100 * arm['rate']:.3f} %"
        arms.add_row(name, f"{arm['units']:,}", f"{arm['conversions']:,}", rate, str(arm["late"]))
    console.print(arms)
    facts = Table(show_header=False)
    for name, value in _facts(document).items():
        facts.add_row(name, value)
    console.print(facts)


def _facts(document: dict[str, Any]) -> dict[str, str]:
    totals, sessions, counts = document["totals"], document["sessions"], document["counts"]
    ci = totals["ci"]
    facts = {
        "change": ", ".join(change[:12] for change in document["change"]),
        "e-value": f"{totals['e_value']:.4g} (fires at {1 / document['policy']['level']:.4g})",
        "always-valid p": f"{totals['p_running_min']:.4g}",
        "interval": "" if ci is None else f"{100 * ci[0]:+.3f} to {100 * ci[1]:+.3f} points",
        "VIF": str(document["gates"]["vif"]),
        "aliased with": ", ".join(document["gates"]["aliased_with"]),
        "units": ", ".join(f"{count:,} {name}" for name, count in counts.items() if count),
        "needed": "" if sessions["required"] is None else f"{sessions['required']:,.0f} units",
        "ended because": document["ended_because"] or "",
        "warnings": ", ".join(document["warnings"]),
        "digest": document["digest"][:16],
    }
    return {name: value for name, value in facts.items() if value}
