"""`import`: historical data from a file, as events received when they occurred."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import IO, Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from sqlalchemy import Connection

from api.event_batch import MOST_EVENTS, EventReader
from api.problem import Problem
from cli.import_map import Experiment, ImportMap, MapError, read_map
from cli.import_rows import RowError, RowReader, chunks, opened
from cli.projects import project_option
from cli.store import data_dir_option, store_transaction
from storage.deploys import DeployRequest, record_deploy
from storage.events import RuntimeEvent, append_history
from storage.experiments import register
from storage.partitions import MOST_DAYS
from storage.projects import find_project
from storage.registration import Registration
from storage.secret import Pseudonyms, service_secret

# The control was there before the file begins, by as long as sessions in flight may last.
_CONTROL_BEFORE = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What an import stored."""

    events: int
    first: datetime | None
    last: datetime | None
    experiment_id: str | None = None


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@project_option
@click.option(
    "--map",
    "map_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML that says how rows become events; NDJSON of runtime events needs none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was stored as JSON.")
@data_dir_option
def import_history(
    file: Path, project: str, map_file: Path | None, as_json: bool, data_dir: Path
) -> None:
    """Read historical data from NDJSON, CSV or Parquet."""
    console = Console(stderr=as_json)
    try:
        layout = None if map_file is None else read_map(map_file)
        with store_transaction(data_dir) as connection:
            project_id = find_project(connection, project).project_id
            pseudonyms = Pseudonyms(service_secret(data_dir))
            imported = _imported(
                connection, console, file, layout, project_id=project_id, pseudonyms=pseudonyms
            )
    except (MapError, RowError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps(asdict(imported), default=str))
    else:
        console.print(
            f"{imported.events:,} events stored, from {imported.first} to {imported.last}."
        )
        if imported.experiment_id is not None:
            console.print(f"Registered as {imported.experiment_id}; now: deploy-reward evaluate")


def _imported(
    connection: Connection,
    console: Console,
    file: Path,
    layout: ImportMap | None,
    *,
    project_id: int,
    pseudonyms: Pseudonyms,
) -> Imported:
    """Stores a whole file in the caller's transaction: all of it, or nothing."""
    with opened(file) as stream, _progress(console) as progress:
        task = progress.add_task(file.name, total=file.stat().st_size)
        batches = (
            _documents(stream, project_id=project_id, pseudonyms=pseudonyms)
            if layout is None
            else _rows(file, stream, layout, project_id=project_id, pseudonyms=pseudonyms)
        )
        imported = _append(
            connection,
            batches,
            told=lambda: progress.update(task, completed=_read_bytes(stream)),
        )
        progress.update(task, completed=file.stat().st_size)
    if layout is None or layout.experiment is None or imported.first is None:
        return imported
    experiment_id = _register(connection, project_id, layout.experiment, layout, imported.first)
    return Imported(
        events=imported.events,
        first=imported.first,
        last=imported.last,
        experiment_id=experiment_id,
    )


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def _read_bytes(stream: IO[bytes]) -> int:
    """Returns how far the file itself is read, below any unpacking."""
    packed: Any = getattr(stream, "fileobj", stream)
    return packed.tell()


def _rows(
    file: Path,
    stream: IO[bytes],
    layout: ImportMap,
    *,
    project_id: int,
    pseudonyms: Pseudonyms,
) -> Iterator[list[RuntimeEvent]]:
    rows = 0
    if layout.times.spread_days is not None:
        with opened(file) as counted:
            rows = sum(len(chunk) for chunk in chunks(file, counted))
    reader = RowReader(layout, project_id=project_id, pseudonyms=pseudonyms, rows=rows)
    for chunk in chunks(file, stream):
        yield reader.events(chunk)


def _documents(
    stream: IO[bytes], *, project_id: int, pseudonyms: Pseudonyms
) -> Iterator[list[RuntimeEvent]]:
    """Yields runtime events as the API would read them from the same lines."""
    reader = EventReader(
        project_id=project_id,
        now=datetime.now(UTC),
        trusted=True,
        history=True,
        pseudonyms=pseudonyms,
    )
    first = 1
    while lines := list(islice(stream, MOST_EVENTS)):
        yield _events_of_lines(reader, [line.strip() for line in lines], first=first)
        first += len(lines)


def _events_of_lines(
    reader: EventReader, lines: Sequence[bytes], *, first: int
) -> list[RuntimeEvent]:
    numbered = [(number, line) for number, line in enumerate(lines, start=first) if line]
    if not numbered:
        return []
    try:
        batch = reader.batch(b'{"events":[%s]}' % b",".join(line for _, line in numbered))
    except Problem as problem:
        raise RowError(
            f"lines {numbered[0][0]} to {numbered[-1][0]}: {problem.detail}"
        ) from problem
    for rejected in batch.rejected:
        fault = rejected.faults[0]
        number = numbered[rejected.index][0]
        raise RowError(f"line {number}: {fault.at.split('/')[-1] or 'event'} {fault.detail}")
    return batch.events


def _append(
    connection: Connection, batches: Iterable[list[RuntimeEvent]], *, told: Callable[[], None]
) -> Imported:
    events, first, last = 0, None, None
    for batch in batches:
        if batch:
            # The whole is one transaction of the operator's own: no batch of it is too wide.
            append_history(connection, batch, most_new_days=MOST_DAYS)
            times = [event.occurred_at for event in batch]
            first = min(times) if first is None else min(first, *times)
            last = max(times) if last is None else max(last, *times)
            events += len(batch)
        told()
    return Imported(events=events, first=first, last=last)


def _register(
    connection: Connection,
    project_id: int,
    experiment: Experiment,
    layout: ImportMap,
    first: datetime,
) -> str:
    """Posts the two deploys and registers the change between them."""
    environment = layout.constants.get("environment", "production")
    posts = (
        (experiment.control_commit, first - _CONTROL_BEFORE, None, None),
        (
            experiment.treatment_commit,
            first,
            {"base_commit": experiment.control_commit, "files": []},
            experiment.allocation,
        ),
    )
    deploy_id = ""
    for sha, deployed_at, diff, allocation in posts:
        recorded = record_deploy(
            connection,
            project_id,
            DeployRequest(
                environment=environment,
                commit={"sha": sha},
                deployed_at=deployed_at,
                graph=None,
                diff=diff,
                allocation=allocation,
                idempotency_key=None,
            ),
        )
        deploy_id = recorded.record["deploy_id"]
    registered = register(
        connection,
        project_id,
        Registration(
            deploy_id=deploy_id,
            control_commit=experiment.control_commit,
            target_metric=experiment.target_metric,
            value_per_conversion=experiment.value_per_conversion,
            routes=experiment.routes,
        ),
    )
    return registered.experiment_id
