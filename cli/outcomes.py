"""`outcomes`: late outcomes of units, from a file or a query, to a running service."""

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
from cli.imports.faults import ImportFailedError
from cli.imports.query import QueryResult, query_option, query_result
from cli.operations.options import json_option
from cli.operations.remote import WRITING_KEY, address_of
from cli.traffic.posting import MOST_EVENTS, Batch, Posted, connected, post
from storage.tenants.secret import Pseudonyms

_SUFFIXES = {"ndjson": ".ndjson", "csv": ".csv", "parquet": ".parquet"}


@click.command("outcomes")
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, allow_dash=True), required=False
)
@query_option
@click.option(
    "--format",
    "kind",
    type=click.Choice(sorted(_SUFFIXES)),
    default="ndjson",
    show_default=True,
    help="Of what `-` reads; a file's is known by its name.",
)
@json_option
def outcomes(file: str | None, *, query: str | None, kind: str, as_json: bool) -> None:
    """Send outcomes that come late, of NDJSON, CSV or Parquet.

    FILE is a query (.sql), or a file of events. All rows are checked before the first is sent. To
    send them again, or after a failure, adds nothing twice.
    """
    if (file is None) is (query is None):
        raise click.UsageError("name a FILE, or --query")
    address = address_of(WRITING_KEY)
    if address is None:
        raise click.ClickException("SERVICE_API_URL is not set: outcomes go to a running service")
    posted = Posted()
    try:
        with (
            Console(stderr=True).status("Checking and sending"),
            _local(file, kind) as path,
            query_result(path, query) as result,
        ):
            _check(result)
            with connected(address.url) as client:
                post(client, _batches(result), key=address.key, replay=False, posted=posted)
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
def _local(file: str | None, kind: str) -> Generator[Path | None]:
    """Gives the file, or a copy of the standard input, which is read twice."""
    if file != "-":
        yield None if file is None else Path(file)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"stdin{_SUFFIXES[kind]}"
        with path.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield path


def _check(result: QueryResult) -> None:
    """Holds that the API would take all rows.

    Raises:
        ImportFailedError: A row breaks a rule; its number, the member and the value are named.
    """
    result.name_members({})
    reader = EventReader(
        project_id=0,
        now=datetime.now(UTC),
        trusted=True,
        # As history, an outcome must say when it occurred.
        history=True,
        # These pseudonyms are stored nowhere.
        pseudonyms=Pseudonyms(b"of a check"),
    )
    for _ in EventChecks(reader).checked(result):
        pass


def _batches(result: QueryResult) -> Iterator[Batch]:
    now = datetime.now(UTC)
    for _, events in result.batches():
        bodies = [msgspec.json.decode(event) for event in events]
        for begin in range(0, len(bodies), MOST_EVENTS):
            yield Batch(due=now, bodies=bodies[begin : begin + MOST_EVENTS])
