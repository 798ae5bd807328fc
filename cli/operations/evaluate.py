"""`evaluate`: runs the pipeline once, now or as of an earlier time."""

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import click
from rich.console import Console
from sqlalchemy import Connection, Engine

from cli.operations.audit import Exit
from cli.operations.options import data_dir_option, json_option
from cli.operations.store import store_url
from cli.table import table
from domain.contract import Contract, contract_of
from domain.document import document_text
from orchestration.pipeline.recompute import evaluate_as_of, freeze_apart
from storage.lake.lake import store_lake
from storage.log.file_errors import WrongFileError
from storage.postgres.engine import opened_engine
from storage.schema.clock import closed_instant
from storage.tenants.projects import find_project
from storage.upkeep.gone_events import EventsGone, decided_without_events
from storage.upkeep.raw_events import experiments_of_project
from storage.upkeep.reading import separate_reading
from storage.verdicts.set_aside import error_line
from storage.views.published import all_contracts

_ID_LENGTH = len("exp_") + 20
# A contract, and the evidence behind it.
_Answer = tuple[Contract, str | None]
ValueT = TypeVar("ValueT")


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
@click.option("--project", "-p", help="Print this project's verdicts alone: its name or number.")
@json_option
@data_dir_option
def evaluate(
    as_of: datetime | None, evidence: bool, project: str | None, as_json: bool, data_dir: Path
) -> None:
    """Materialize the assets once, for every project.

    With --as-of nothing is written; it is refused, with exit 3, where raw events are gone of what
    was open at that time. An experiment that cannot be computed, as where a file of the lake is not
    as it is listed, is named and left out, with exit 4.
    """
    with store_url(data_dir) as url, opened_engine(url) as engine:
        asked = None if project is None else _project_id(engine, project)
        if as_of is None:
            with Console(stderr=True).status("Reading the log and publishing verdicts"):
                materialize_once(url)
            with engine.begin() as connection:
                contracts = all_contracts(connection, asked)
            print_contracts([contract_of(text) for text in contracts], as_json=as_json)
        else:
            now = _require_past(engine, as_of)
            broken: dict[str, Exception] = {}
            with (
                separate_reading(engine) as connection,
                named_where_gone(),
                Console(stderr=True).status("Reading the log"),
            ):
                lake = store_lake(engine, data_dir=data_dir)
                freeze_apart(connection, as_of=now, lake=lake, leave_out=broken.__setitem__)
                decided = decided_without_events(connection, as_of=as_of)
                drafted = evaluate_as_of(
                    connection, as_of=as_of, lake=lake, leave_out=broken.__setitem__
                )
                documents: dict[str, _Answer] = {
                    new.draft.experiment_id: (new.contract, new.draft.document) for new in drafted
                }
                for unchanged in decided:
                    documents[unchanged.experiment_id] = (
                        contract_of(unchanged.contract),
                        unchanged.evidence,
                    )
                printed = _of_project(connection, asked, documents)
                left_out = _of_project(connection, asked, broken)
            _print_answers([*printed.values()], evidence=evidence, as_json=as_json)
            for experiment_id, error in left_out.items():
                reason = str(error) if isinstance(error, WrongFileError) else error_line(error)
                click.echo(f"{experiment_id} was not computed: {reason}", err=True)
            if left_out:
                raise click.exceptions.Exit(Exit.NOT_COMPUTED)


def _project_id(engine: Engine, name: str) -> int:
    with engine.connect() as connection:
        return find_project(connection, name).project_id


def _of_project(
    connection: Connection, project_id: int | None, experiments: Mapping[str, ValueT]
) -> dict[str, ValueT]:
    """Returns the entries of a project's experiments; all where none is asked for."""
    shown = sorted(experiments)
    if project_id is not None:
        known = experiments_of_project(connection, project_id)
        shown = [experiment_id for experiment_id in shown if experiment_id in known]
    return {experiment_id: experiments[experiment_id] for experiment_id in shown}


def materialize_once(url: str) -> None:
    """Materializes the pipeline's assets in this process."""
    from orchestration.once import materialize_pipeline  # noqa: PLC0415 - Dagster takes seconds

    if not materialize_pipeline(url):
        raise click.ClickException("a step failed; its error stands above")


def _require_past(engine: Engine, as_of: datetime) -> datetime:
    with engine.connect() as connection:
        now = closed_instant(connection)
    if as_of > now:
        raise click.BadParameter(f"{as_of.isoformat()} has not come yet", param_hint="--as-of")
    return now


class EventsAreGone(click.ClickException):
    """The requested evaluation needs raw events that were dropped."""

    exit_code = Exit.GONE


@contextmanager
def named_where_gone() -> Generator[None]:
    """Ends the command with exit 3 where raw events are gone, and names the experiments."""
    try:
        yield
    except EventsGone as gone:
        raise EventsAreGone(f"refused: {gone}") from gone


def _print_answers(answers: Sequence[_Answer], *, evidence: bool, as_json: bool) -> None:
    if not (evidence and as_json):
        print_contracts([contract for contract, _ in answers], as_json=as_json)
        return
    documents = [
        {"contract": contract, "evidence": json.loads(behind or "null")}
        for contract, behind in answers
    ]
    click.echo(document_text(documents))


def print_contracts(contracts: Sequence[Contract], *, as_json: bool) -> None:
    """Prints verdict contracts as a table, or as a JSON list."""
    if as_json:
        click.echo(document_text(contracts))
        return
    rows = (
        (
            contract.experiment_id,
            contract.verdict,
            contract.abstain_reason or "",
            contract.power_state.clock,
            "" if contract.lift is None else f"{100 * contract.lift:+.2f} points",
            "" if contract.confidence is None else f"{contract.confidence:.4f}",
        )
        for contract in contracts
    )
    columns = ("experiment", "verdict", "reason", "clock", "lift", "confidence")
    verdicts = table(rows, *columns, title="Verdicts")
    # Whole: it is what the next command takes.
    verdicts.columns[0].no_wrap, verdicts.columns[0].min_width = True, _ID_LENGTH
    Console().print(verdicts)
