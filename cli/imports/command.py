"""`import`: historical data from a file, as events received when they occurred."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from sqlalchemy import Engine

from api.wire.event_batch import EventReader
from cli.imports.checks import EventChecks, EventLinesOfFile, MapRows, require_lines
from cli.imports.experiments import ExperimentPlan, planned, require_unregistered
from cli.imports.faults import ImportFailedError
from cli.imports.map import ImportMap, Times, read_map
from cli.imports.progress import shown_bars
from cli.imports.report import ImportReport
from cli.imports.spool import Spool, Tally
from cli.imports.storing import Storing
from cli.imports.tables import Table, opened_table
from cli.operations.options import data_dir_option, project_option
from cli.operations.store import store_engine
from storage.log.events import ClosedHistory, closed_histories
from storage.tenants.projects import find_project
from storage.tenants.secret import Pseudonyms, service_secret


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
    file: Path,
    *,
    project: str,
    map_file: Path | None,
    dry_run: bool,
    as_json: bool,
    data_dir: Path,
) -> None:
    """Read historical data from NDJSON, CSV or Parquet."""
    console = Console(stderr=True)
    try:
        layout = _NO_MAP if map_file is None else read_map(map_file)
        with opened_table(file, decimal=layout.decimal) as table, store_engine(data_dir) as engine:
            if map_file is None:
                require_lines(table)
            history = _opened_history(engine, project, layout, data_dir)
            report = history.imported(
                table, console, is_mapped=map_file is not None, is_rehearsal=dry_run
            )
    except ImportFailedError as fault:
        raise click.ClickException(str(fault)) from fault
    if as_json:
        click.echo(json.dumps(report.document(), default=str))
    else:
        click.echo("\n".join(report.lines()))


# Lines of runtime events have a form of their own, and no experiments.
_NO_MAP = ImportMap(layout="event", times=Times(column="occurred_at"), columns={"event": "event"})


@dataclass(frozen=True, kw_only=True)
class _History:
    """The history of a project, to which a file is to be added.

    Attributes:
        layout: How to read the file.
        plan: The experiments of the file.
        closed: The environments whose history is closed from some time on.
        reader: The reader of the API, for events of the past.
    """

    engine: Engine
    layout: ImportMap
    plan: ExperimentPlan
    closed: Mapping[str, ClosedHistory]
    reader: EventReader

    def imported(
        self, table: Table, console: Console, *, is_mapped: bool, is_rehearsal: bool
    ) -> ImportReport:
        """Checks the whole file, then stores it, and returns its report."""
        checks = EventChecks(self.reader)
        checks.require_map(self.layout)
        with shown_bars(console) as bars, Spool.opened() as spool:
            shown = bars.begin(f"Checking {table.path.name}")
            source = MapRows(self.layout, table) if is_mapped else EventLinesOfFile(table)
            for lines, _, share in checks.checked(source):
                spool.add(lines)
                self._require_open_history(spool.tally)
                shown.advance_to(share)
            shown.advance_to(1.0)
            notes = checks.notes()
            if isinstance(source, MapRows):
                source.require_all_arms()
                notes += source.notes()
            # All of it is in the spool now: its memory is the evaluation's.
            table.database.execute("DROP TABLE cells")
            storing = Storing(engine=self.engine, spool=spool, plan=self.plan, bars=bars)
            judgements = storing.rehearse()
            if not is_rehearsal:
                ids = storing.store()
                judgements = [
                    replace(judgement, experiment_id=experiment_id)
                    for judgement, experiment_id in zip(judgements, ids, strict=True)
                ]
            tally = spool.tally
        if (rate := self.plan.settings.sample_rate) < 1:
            notes.append(
                f"The project's sample_rate is {rate:g}: its experiments count that share of these"
                " units. With sample_rate = 1 before the registration they count all."
            )
        return ImportReport(
            rows=source.rows,
            tally=tally,
            skipped=source.skipped,
            arms=source.arms,
            notes=notes,
            experiments=judgements,
            is_rehearsal=is_rehearsal,
        )

    def _require_open_history(self, tally: Tally) -> None:
        for environment, closed in self.closed.items():
            if environment in tally.last:
                closed.require_before(tally.last[environment])


def _opened_history(engine: Engine, project: str, layout: ImportMap, data_dir: Path) -> _History:
    """Returns a project's history, its map checked, before the file is read."""
    with engine.begin() as connection:
        project_id = find_project(connection, project).project_id
        closed = closed_histories(connection, project_id)
        if layout.environment in closed:
            require_unregistered(connection, project_id, layout)
        return _History(
            engine=engine,
            layout=layout,
            plan=planned(connection, project_id, layout),
            closed=closed,
            reader=EventReader(
                project_id=project_id,
                now=datetime.now(UTC),
                trusted=True,
                history=True,
                pseudonyms=Pseudonyms(service_secret(data_dir)),
            ),
        )
