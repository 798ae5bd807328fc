"""`metrics`: the metrics that a dbt project has already, as settings of a project."""

import json
from pathlib import Path

import click
from dbt_metrics import ManifestError, read_metrics

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("metrics")
@click.option("--dbt", "manifest", type=_FILE, required=True, help="target/manifest.json")
@click.option("--semantic", type=_FILE, help="target/semantic_manifest.json, which goes before.")
@click.option("--unit", default="", help="The entity that arms are drawn by: customer, say.")
@click.option("--query", "as_query", is_flag=True, help="Print the SELECT that `outcomes` sends.")
def metrics(manifest: Path, *, semantic: Path | None, unit: str, as_query: bool) -> None:
    """Write the metrics of a dbt project as settings, or say why not."""
    try:
        read = read_metrics(
            manifest.read_bytes(), None if semantic is None else semantic.read_bytes(), unit=unit
        )
    except ManifestError as error:
        raise click.ClickException(str(error)) from None
    if as_query:
        click.echo("\nUNION ALL\n".join(read.queries().values()))
        return
    for name, definition in read.expressed.items():
        if isinstance(definition, str):
            click.echo(f"# {name}: {definition}")
            continue
        click.echo(f"\n[metrics.{_toml(name)}]")
        for member, value in definition.items():
            click.echo(f"{member} = {_toml(value)}")
    click.echo(f"{len(read.written)} of {len(read.metrics)} by {read.unit}", err=True)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        members = (f"{json.dumps(name)} = {_toml(each)}" for name, each in value.items())
        return f"{{ {', '.join(members)} }}"
    return json.dumps(value, ensure_ascii=False)
