"""`outcomes`: what became of units, from a file, to a running service."""

import json
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from api.wire.event_batch import EventReader
from cli.imports.checks import EventChecks
from cli.imports.faults import ImportFailedError, MapError, name_list
from cli.imports.layouts import Draft, EventLayout
from cli.imports.map import MEMBERS, ImportMap, Times, read_map
from cli.imports.progress import Bars, Pass, shown_bars
from cli.imports.tables import Chunk, chunks, file_format, header, opened
from cli.operations.remote import WRITING_KEY, address_of
from cli.traffic.posting import BATCH_SIZES, Batch, connected, post
from cli.traffic.run_record import Posted
from mcp_server.address import Address
from storage.tenants.secret import Pseudonyms

_PATH = "/v1/events"
_TIME = "occurred_at"
_SUFFIXES = {"ndjson": ".ndjson", "csv": ".csv", "parquet": ".parquet"}
# Keys of NDJSON are read from so many lines: members are optional.
_HEADER_LINES = 10_000


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
    help="Of what `-` reads; a file's is told by its name.",
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
            layout = _named_alike(path) if map_file is None else _event_map(map_file)
            outcome_file = _OutcomeFile(path=path, layout=layout)
            with shown_bars(Console(stderr=True)) as bars:
                outcome_file.check(bars)
                posted = outcome_file.send(address, bars)
    except ImportFailedError as fault:
        raise click.ClickException(str(fault)) from fault
    _report(posted, as_json=as_json)


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


def _named_alike(path: Path) -> ImportMap:
    """Returns the map of a file whose columns are named like the members of an event."""
    names = _names(path)
    if missing := [name for name in ("event", "session_id", _TIME) if name not in names]:
        raise MapError(
            f"{path.name} has no column {name_list(missing)}: it has {name_list(names)};"
            " name the columns in a --map MAP.toml"
        )
    columns = {name: name for name in names if name in MEMBERS}
    return ImportMap(layout="event", times=Times(column=_TIME), columns=columns)


def _names(path: Path) -> list[str]:
    if file_format(path) != "ndjson":
        return header(path)
    names: dict[str, None] = {}
    with opened(path) as stream:
        for _, line in zip(range(_HEADER_LINES), stream, strict=False):
            try:
                names |= dict.fromkeys(msgspec.json.decode(line, type=dict[str, msgspec.Raw]))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                # The check names the line.
                continue
    return list(names)


@dataclass(frozen=True, kw_only=True)
class _OutcomeFile:
    """A file of outcomes and how to read it."""

    path: Path
    layout: ImportMap
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def check(self, bars: Bars) -> None:
        """Holds every row to the rules of the API, before anything is sent.

        Raises:
            ImportFailedError: A row breaks one; line, column and cell are named.
        """
        reader = EventReader(
            project_id=0,
            now=self.now,
            trusted=True,
            history=False,
            # Nothing is kept of what is checked here.
            pseudonyms=Pseudonyms(b"of a check"),
        )
        rows = EventLayout(self.layout)
        checks = EventChecks(reader, rows)
        checks.require_map()
        for chunk, drafts in self._drafts(rows, bars.begin(f"Checking {self.path.name}")):
            for _ in checks.events(chunk, drafts):
                pass

    def send(self, address: Address, bars: Bars) -> Posted:
        """Sends every row, again where the service is busy, and returns its counts."""
        shown = bars.begin(f"Sending {self.path.name}")
        with connected(address.url) as client:
            key = address.key
            return post(client, self._batches(shown), key=key, replay=False)

    def _batches(self, shown: Pass) -> Iterator[Batch]:
        for _, drafts in self._drafts(EventLayout(self.layout), shown):
            bodies: list[dict[str, Any]] = []
            for draft in drafts:
                bodies.append(msgspec.to_builtins(draft.members))
                if len(bodies) == BATCH_SIZES[_PATH]:
                    yield Batch(path=_PATH, due=self.now, bodies=bodies)
                    bodies = []
            if bodies:
                yield Batch(path=_PATH, due=self.now, bodies=bodies)

    def _drafts(self, rows: EventLayout, shown: Pass) -> Iterator[tuple[Chunk, Iterator[Draft]]]:
        for chunk in chunks(self.path, self.layout.column_names):
            yield chunk, rows.drafts(chunk)
            shown.advance_to(chunk.progress)
        shown.advance_to(1.0)


def _report(posted: Posted, *, as_json: bool) -> None:
    counts = {
        "events": posted.events,
        "accepted": posted.accepted,
        "late": posted.late,
        "sampled_out": posted.sampled_out,
        "rejected": posted.rejected,
    }
    if as_json:
        click.echo(json.dumps(counts))
    else:
        click.echo(f"{posted.events:,} outcomes read, {posted.accepted:,} stored.")
    if posted.late:
        click.echo(
            f"Warning: {posted.late:,} came after the longest window and grace, so that no verdict"
            " counts them: give their metric a longer grace_seconds.",
            err=True,
        )
    if posted.rejected:
        raise click.ClickException(f"the service refused {posted.rejected:,} events")
