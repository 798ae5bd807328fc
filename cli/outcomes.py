"""`outcomes`: late outcomes of units, from a file or a query, to a running service."""

import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from api.wire.event_batch import EventReader
from cli.imports.checks import EventChecks
from cli.imports.faults import ImportFailedError
from cli.imports.query import QueryResult, query_option, query_result
from cli.operations.options import json_option
from cli.operations.remote import WRITING_KEY, Remote, RemoteFault, address_of, document, remote
from storage.tenants.secret import Pseudonyms

# A body holds a MiB, also where each event names two hundred flags.
_MOST_EVENTS = 200
# A rate limit may ask for a whole minute.
_PATIENCE_SECONDS = 150.0
_PAUSE_SECONDS = 0.5
# So many rows of a shop do not come in the same second of a day.
_MANY = 20
_SUMMED = ("accepted", "late", "sampled_out")
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
    if address_of(WRITING_KEY) is None:
        raise click.ClickException("SERVICE_API_URL is not set: outcomes go to a running service")
    counts: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    times_of_day: set[str] = set()
    try:
        with (
            Console(stderr=True).status("Checking and sending"),
            _local(file, kind) as path,
            query_result(path, query) as result,
        ):
            _check(result)
            with remote(WRITING_KEY, Path()) as service:
                for events in _batches(result):
                    receipt = _sent(service, events)
                    unknown.update(receipt.get("unknown", {}))
                    times_of_day.update(str(event["occurred_at"])[11:19] for event in events)
                    counts.update({name: receipt.get(name, 0) for name in _SUMMED})
                    counts.update(events=len(events), rejected=len(receipt.get("rejected", ())))
    except ImportFailedError as fault:
        raise click.ClickException(str(fault)) from fault
    _report(counts, unknown, as_json=as_json)
    if counts["events"] >= _MANY and len(times_of_day) == 1:
        click.echo(
            f"Warning: all are dated {times_of_day.pop()} of their day. An outcome that is dated"
            " before its page view counts for nothing: select the time of day as well.",
            err=True,
        )
    if counts["rejected"]:
        raise click.ClickException(f"the service refused {counts['rejected']:,} events")


def _report(counts: Counter[str], unknown: Counter[str], *, as_json: bool) -> None:
    if as_json:
        names = ("events", *_SUMMED, "rejected")
        click.echo(json.dumps({name: counts[name] for name in names} | {"unknown": unknown}))
    else:
        click.echo(f"{counts['events']:,} outcomes read, {counts['accepted']:,} stored.")
    if counts["late"]:
        click.echo(
            f"Warning: {counts['late']:,} came after the longest window and grace, so that no"
            " verdict counts them: give their metric a longer grace_seconds.",
            err=True,
        )
    for member, rows in unknown.items():
        click.echo(f"Warning: {member} says nothing in {rows:,}, stored without it.", err=True)


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
    """Holds that the API would take all rows."""
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


def _batches(result: QueryResult) -> Iterator[list[dict[str, object]]]:
    for _, events in result.batches():
        bodies = [msgspec.json.decode(event) for event in events]
        for begin in range(0, len(bodies), _MOST_EVENTS):
            yield bodies[begin : begin + _MOST_EVENTS]


def _sent(service: Remote, events: Sequence[object]) -> dict[str, Any]:
    """Returns the receipt of events; while the service is busy they are sent again."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return document(service.ask("POST", "/v1/events", {"events": events}))
        except RemoteFault as fault:
            wait = max(_PAUSE_SECONDS, fault.retry_after or 0)
            if not fault.passing or time.monotonic() + wait > until:
                raise
            time.sleep(wait)
