"""`evaluate` and `rebuild`: the walk once, now or as of an earlier time, or all anew."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine

from cli.store import data_dir_option, store_url
from orchestration.evidence import Drafted
from orchestration.rebuild import rebuild as walk_anew
from storage.clock import closed_instant
from storage.contract import document_text
from storage.engine import open_engine
from storage.reading import empty_derived_tables, separate_reading
from storage.verdicts import all_contracts

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for a program.")


class Moment(click.ParamType[datetime]):
    """A time with an offset, as the interface writes it."""

    name = "time"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Reads RFC 3339; a time without offset is refused, since it names no instant."""
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no RFC 3339 time, such as 2026-11-21T09:00:00Z", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{value!r} has no offset: add Z for UTC", param, ctx)
        return moment.astimezone(UTC)


@click.command()
@click.option("--as-of", type=Moment(), help="Read the log so far only; nothing is published.")
@click.option("--evidence", is_flag=True, help="With --as-of and --json: the evidence beside.")
@json_option
@data_dir_option
def evaluate(as_of: datetime | None, evidence: bool, as_json: bool, data_dir: Path) -> None:
    """Materialize the assets once, for every project."""
    with store_url(data_dir) as url:
        engine = open_engine(url)
        if as_of is None:
            materialize_once(url)
            with engine.begin() as connection:
                contracts = all_contracts(connection)
            _print([json.loads(text) for text in contracts], as_json=as_json)
        else:
            _require_past(engine, as_of)
            with separate_reading(engine) as connection:
                drafted = walk_anew(connection, as_of=as_of)
            _print_drafts(drafted, evidence=evidence, as_json=as_json)
        engine.dispose()


@click.command()
@json_option
@data_dir_option
def rebuild(as_json: bool, data_dir: Path) -> None:
    """Empty every derived table and fill it again from raw events."""
    with store_url(data_dir) as url:
        engine = open_engine(url)
        with engine.begin() as connection:
            empty_derived_tables(connection)
        materialize_once(url)
        with engine.begin() as connection:
            contracts = all_contracts(connection)
        _print([json.loads(text) for text in contracts], as_json=as_json)
        engine.dispose()


def materialize_once(url: str) -> None:
    """Materializes the walk's assets in this process.

    Raises:
        click.ClickException: A step failed; its error stands in the log above.
    """
    from orchestration.once import materialize_walk  # noqa: PLC0415 - Dagster takes seconds

    if not materialize_walk(url):
        raise click.ClickException("a step failed; its error stands above")


def _require_past(engine: Engine, as_of: datetime) -> None:
    with engine.connect() as connection:
        now = closed_instant(connection)
    if as_of > now:
        raise click.BadParameter(f"{as_of.isoformat()} has not come yet", param_hint="--as-of")


def _print_drafts(drafted: list[Drafted], *, evidence: bool, as_json: bool) -> None:
    contracts = [one.contract for one in drafted]
    if not (evidence and as_json):
        _print(contracts, as_json=as_json)
        return
    documents = [
        {"contract": one.contract, "evidence": json.loads(one.draft.document)} for one in drafted
    ]
    click.echo(document_text(documents))


def _print(contracts: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        click.echo(document_text(contracts))
        return
    table = Table(title="Verdicts")
    for column in ("experiment", "verdict", "reason", "clock", "lift", "confidence"):
        table.add_column(column)
    for contract in contracts:
        lift, confidence = contract["lift"], contract["confidence"]
        table.add_row(
            contract["experiment_id"],
            contract["verdict"],
            contract["abstain_reason"] or "",
            contract["power_state"]["clock"],
            "" if lift is None else f"{100 * lift:+.2f} points",
            "" if confidence is None else f"{confidence:.4f}",
        )
    Console().print(table)
