"""`import`: historical data from a file, as events received when they occurred."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from sqlalchemy import Engine

from api.wire.event_batch import EventReader
from cli.imports.checks import EventChecks, EventLinesOfFile, require_lines
from cli.imports.experiments import ExperimentPlan, planned, require_unregistered
from cli.imports.faults import ImportFailedError
from cli.imports.layouts import Layout
from cli.imports.map import ImportMap, Times, read_map
from cli.imports.report import ImportReport
from cli.imports.spool import Spool
from cli.imports.storing import Storing
from cli.imports.tables import Table, opened_table
from cli.operations.options import data_dir_option, project_option
from cli.operations.store import store_engine
from storage.log.events import ClosedHistory, closed_histories
from storage.tenants.projects import find_project
from storage.tenants.secret import Pseudonyms, store_secret


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@project_option
@click.option(
    "--map",
    "map_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML that says how rows become events; NDJSON of runtime events needs none.",
)
@click.option(
    "--dry-run", is_flag=True, help="Read, check and count the whole file, and store nothing."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was stored as JSON.")
@data_dir_option
def import_history(
    file: Path, *, project: str, map_file: Path | None, dry_run: bool, as_json: bool, data_dir: Path
) -> None:
    """Read historical data from NDJSON, CSV or Parquet."""
    try:
        layout = _NO_MAP if map_file is None else read_map(map_file)
        with opened_table(file, decimal=layout.decimal) as table, store_engine(data_dir) as engine:
            if map_file is None:
                require_lines(table)
            with engine.begin() as connection:
                project_id = find_project(connection, project).project_id
                closed = closed_histories(connection, project_id)
                if layout.environment in closed:
                    require_unregistered(connection, project_id, layout)
                plan = planned(connection, project_id, layout)
                secret = store_secret(connection, data_dir)
            reader = EventReader(
                project_id=project_id,
                now=datetime.now(UTC),
                trusted=True,
                history=True,
                pseudonyms=Pseudonyms(secret),
            )
            report = _imported(
                table, engine, plan, closed=closed, reader=reader, is_rehearsal=dry_run
            )
    except ImportFailedError as fault:
        raise click.ClickException(str(fault)) from fault
    if as_json:
        click.echo(json.dumps(report.document(), default=str))
    else:
        click.echo("\n".join(report.lines()))


# Lines of runtime events have a form of their own, and no experiments.
_NO_MAP = ImportMap(layout="event", times=Times(column="occurred_at"), columns={"event": "event"})


def _imported(
    table: Table,
    engine: Engine,
    plan: ExperimentPlan,
    *,
    closed: Mapping[str, ClosedHistory],
    reader: EventReader,
    is_rehearsal: bool,
) -> ImportReport:
    """Checks the whole file, then stores it, and returns its report."""
    checks = EventChecks(reader)
    checks.require_map(plan.layout)
    with Console(stderr=True).status("") as status, Spool.opened() as spool:
        is_mapped = plan.layout is not _NO_MAP
        source = Layout(plan.layout, table) if is_mapped else EventLinesOfFile(table)
        for lines, share in checks.checked(source):
            spool.add(lines)
            for environment, history in closed.items():
                if environment in spool.tally.last:
                    history.require_before(spool.tally.last[environment])
            status.update(f"Checking {table.path.name}: {share:.0%}")
        notes = checks.notes()
        if isinstance(source, Layout):
            source.require_all_arms()
            notes += source.notes()
        # All of it is in the spool now: its memory is the evaluation's.
        table.database.execute("DROP TABLE cells")
        storing = Storing(engine=engine, spool=spool, plan=plan, say=status.update)
        judgements = storing.rehearse()
        if not is_rehearsal:
            ids = storing.store()
            judgements = [
                replace(judgement, experiment_id=experiment_id)
                for judgement, experiment_id in zip(judgements, ids, strict=True)
            ]
    if (rate := plan.settings.sample_rate) < 1:
        notes.append(
            f"The project's sample_rate is {rate:g}: its experiments count that share of these"
            " units. With sample_rate = 1 before the registration they count all."
        )
    return ImportReport(
        rows=source.rows,
        tally=spool.tally,
        skipped=source.skipped,
        arms=source.arms,
        notes=notes,
        experiments=judgements,
        is_rehearsal=is_rehearsal,
    )
