"""`import`: historical data of a query, as events received when they occurred."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from api.wire.event_batch import EventReader
from cli.imports.checks import EventChecks, counted_arms, require_units
from cli.imports.experiments import planned, require_unregistered
from cli.imports.experiments_file import ExperimentsFile, read_experiments
from cli.imports.faults import ImportFailedError
from cli.imports.query import QueryResult, query_option, query_result
from cli.imports.report import ImportReport
from cli.imports.spool import Spool
from cli.imports.storing import Storing
from cli.operations.options import data_dir_option, json_option, project_option
from cli.operations.store import store_engine
from storage.log.events import ClosedHistory, closed_histories
from storage.tenants.projects import find_project
from storage.tenants.secret import Pseudonyms
from storage.tenants.store_secret import store_secret


@click.command("import")
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@query_option
@project_option
@click.option(
    "--experiments",
    "experiments_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML that names the experiments to register, and the commits of arms.",
)
@click.option("--dry-run", is_flag=True, help="Read, check and count all rows, and store nothing.")
@json_option
@data_dir_option
def import_history(
    file: Path | None,
    *,
    query: str | None,
    project: str,
    experiments_file: Path | None,
    dry_run: bool,
    as_json: bool,
    data_dir: Path,
) -> None:
    """Read historical data by a SELECT over NDJSON, CSV or Parquet.

    FILE is a query (.sql), or a file of events.
    """
    if (file is None) is (query is None):
        raise click.UsageError("name a FILE, or --query")
    try:
        named = (
            ExperimentsFile() if experiments_file is None else read_experiments(experiments_file)
        )
        with store_engine(data_dir) as engine:
            with engine.begin() as connection:
                project_id = find_project(connection, project).project_id
                closed = closed_histories(connection, project_id)
                if named.environment in closed:
                    require_unregistered(connection, project_id, named)
                plan = planned(connection, project_id, named)
                secret = store_secret(connection, data_dir)
            reader = EventReader(
                project_id=project_id,
                now=datetime.now(UTC),
                trusted=True,
                history=True,
                pseudonyms=Pseudonyms(secret),
                unit=plan.settings.unit_property,
            )
            with (
                Console(stderr=True).status("Running the query") as status,
                query_result(file, query) as result,
            ):
                report = _imported(
                    result,
                    Storing(engine=engine, plan=plan, say=status.update),
                    closed=closed,
                    reader=reader,
                    is_rehearsal=dry_run,
                )
    except ImportFailedError as fault:
        raise click.ClickException(str(fault)) from fault
    if as_json:
        click.echo(json.dumps(report.document(), default=str))
    else:
        click.echo("\n".join(report.lines()))


def _imported(
    result: QueryResult,
    storing: Storing,
    *,
    closed: Mapping[str, ClosedHistory],
    reader: EventReader,
    is_rehearsal: bool,
) -> ImportReport:
    plan = storing.plan
    named = plan.named
    result.name_members(named.commits)
    rows, checks = result.rows, EventChecks(reader)
    with Spool.opened() as spool:
        storing.say("Checking the rows")
        for lines in checks.checked(result):
            spool.add(lines)
            for environment, history in closed.items():
                if environment in spool.tally.last:
                    history.require_before(spool.tally.last[environment])
        arms, skipped = counted_arms(result, named.commits)
        require_units(result, named.arms, totals=named.totals)
        # All of it is in the spool now: its memory is the evaluation's.
        result.drop()
        judgements = storing.rehearse(spool)
        if not is_rehearsal:
            ids = storing.store(spool)
            judgements = [
                replace(judgement, experiment_id=experiment_id)
                for judgement, experiment_id in zip(judgements, ids, strict=True)
            ]
    notes = checks.notes()
    if (rate := plan.settings.sample_rate) < 1:
        notes.append(
            f"The project's sample_rate is {rate:g}: its experiments count that share of these"
            " units. With sample_rate = 1 before the registration they count all."
        )
    return ImportReport(
        rows=rows,
        tally=spool.tally,
        skipped=skipped,
        arms=arms,
        notes=notes,
        experiments=judgements,
        is_rehearsal=is_rehearsal,
    )
