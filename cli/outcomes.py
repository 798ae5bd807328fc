"""`outcomes`: what became of units, from a file, to a running service."""

import json
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec
from rich.console import Console

from api.wire.event_batch import EventReader
from cli.imports.checks import EventChecks
from cli.imports.faults import ImportFailedError, MapError, name_list
from cli.imports.layouts import Layout
from cli.imports.map import MEMBERS, ImportMap, Times, read_map
from cli.imports.tables import Table, opened_table
from cli.operations.remote import WRITING_KEY, address_of
from cli.traffic.posting import MOST_EVENTS, Batch, Posted, connected, post
from storage.tenants.secret import Pseudonyms

_TIME = "occurred_at"
_SUFFIXES = {"ndjson": ".ndjson", "csv": ".csv", "parquet": ".parquet"}


@click.command("outcomes")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--map",
    "map_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML that says which column is which member; none where they have the same names.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(sorted(_SUFFIXES)),
    default="ndjson",
    show_default=True,
    help="Of what `-` reads; a file's is known by its name.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was stored as JSON.")
def outcomes(file: str, *, map_file: Path | None, kind: str, as_json: bool) -> None:
    """Send outcomes that come late, from NDJSON, CSV or Parquet.

    The whole file is checked before its first event is sent. To send a file again, or after a
    failure, adds nothing twice.
    """
    address = address_of(WRITING_KEY)
    if address is None:
        raise click.ClickException("SERVICE_API_URL is not set: outcomes go to a running service")
    try:
        with _local(file, kind) as path:
            layout = None if map_file is None else _event_map(map_file)
            decimal = "." if layout is None else layout.decimal
            with opened_table(path, decimal=decimal) as table:
                layout = layout or _named_alike(table)
                with Console(stderr=True).status(f"Checking and sending {path.name}"):
                    batches = _batches(_checked(table, layout))
                    posted = Posted()
                    with connected(address.url) as client:
                        post(client, batches, key=address.key, replay=False, posted=posted)
    except ImportFailedError as fault:
        raise click.ClickException(str(fault)) from fault
    counts = posted.counts
    if as_json:
        names = ("events", "accepted", "late", "sampled_out", "rejected")
        click.echo(json.dumps({name: counts[name] for name in names}))
    else:
        click.echo(f"{counts['events']:,} outcomes read, {counts['accepted']:,} stored.")
    if counts["late"]:
        click.echo(
            f"Warning: {counts['late']:,} came after the longest window and grace, so that no"
            " verdict counts them: give their metric a longer grace_seconds.",
            err=True,
        )
    if counts["rejected"]:
        raise click.ClickException(f"the service refused {counts['rejected']:,} events")


@contextmanager
def _local(file: str, kind: str) -> Generator[Path]:
    """Gives the file, or a copy of the standard input, which is read twice."""
    if file != "-":
        yield Path(file)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"stdin{_SUFFIXES[kind]}"
        with path.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield path


def _event_map(file: Path) -> ImportMap:
    layout = read_map(file)
    if layout.layout != "event":
        raise MapError(f'{file.name}: layout is {layout.layout!r}: outcomes have a row an "event"')
    if layout.experiment is not None:
        raise MapError(f"{file.name}: experiment is for `import`: register the change instead")
    return layout


def _named_alike(table: Table) -> ImportMap:
    """Returns the map of a file whose columns are named like the members of an event."""
    names = table.names()
    if missing := [name for name in ("event", "session_id", _TIME) if name not in names]:
        raise MapError(
            f"{table.path.name} has no column {name_list(missing)}: it has {name_list(names)};"
            " name the columns in a --map MAP.toml"
        )
    columns = {name: name for name in names if name in MEMBERS}
    return ImportMap(layout="event", times=Times(column=_TIME), columns=columns)


def _checked(table: Table, layout: ImportMap) -> Layout:
    """Returns a file's rows, all of which the API would take.

    Raises:
        ImportFailedError: A row breaks a rule; line, column and cell are named.
    """
    checks = EventChecks(
        EventReader(
            project_id=0,
            now=datetime.now(UTC),
            trusted=True,
            history=False,
            # Nothing is kept of what is checked here.
            pseudonyms=Pseudonyms(b"of a check"),
        )
    )
    checks.require_map(layout)
    rows = Layout(layout, table, is_history=False)
    for _ in checks.checked(rows):
        pass
    return rows


def _batches(rows: Layout) -> Iterator[Batch]:
    now = datetime.now(UTC)
    for batch in rows.table.batches(rows.select()):
        bodies = [msgspec.json.decode(event) for event in batch.column("event").to_pylist()]
        for begin in range(0, len(bodies), MOST_EVENTS):
            yield Batch(due=now, bodies=bodies[begin : begin + MOST_EVENTS])
