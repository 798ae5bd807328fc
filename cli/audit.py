"""The command `audit`: a served verdict against the raw events."""

from enum import IntEnum
from pathlib import Path

import click

from cli.store import data_dir_option, store_url
from orchestration.audit import Audit
from orchestration.audit import audit as audited
from storage.contract import document_text
from storage.engine import open_engine
from storage.raw_events import freeze_reads
from storage.refusal import Missing

_SHOWN = 20


class Exit(IntEnum):
    """What the process ends with."""

    EQUAL = 0
    DIFFERENT = 1
    GONE = 3


@click.command("audit")
@click.argument("experiment")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@data_dir_option
@click.pass_context
def audit(ctx: click.Context, experiment: str, as_json: bool, data_dir: Path) -> None:
    """Recompute a verdict from raw events and compare.

    By another route than the one that it was served by: in one go by DuckDB, not minute by minute
    in PostgreSQL. Exposures, outcomes, cells, evidence and contract are compared to the byte, as of
    the verdict's own look. Exits with 0 where they are equal, 1 where they differ, 3 where the raw
    events are gone.
    """
    with store_url(data_dir) as url:
        engine = open_engine(url, pool_size=1)
        try:
            with engine.begin() as connection:
                freeze_reads(connection)
                found = audited(connection, experiment)
        except Missing as missing:
            raise click.BadParameter(str(missing), param_hint="EXPERIMENT") from missing
        finally:
            engine.dispose()
    click.echo(_document(found) if as_json else _told(found))
    ctx.exit(_exit(found))


def _exit(found: Audit) -> Exit:
    if found.gone:
        return Exit.GONE
    return Exit.DIFFERENT if found.differences else Exit.EQUAL


def _document(found: Audit) -> str:
    return document_text(
        {
            "experiment_id": found.experiment_id,
            "as_of": None if found.as_of is None else found.as_of.isoformat(),
            "equal": found.equal,
            "events": found.events,
            "gone": list(found.gone),
            "difference_count": found.count,
            "differences": list(found.differences),
        }
    )


def _told(found: Audit) -> str:
    as_of = "before its first look" if found.as_of is None else f"as of {found.as_of.isoformat()}"
    subject = f"{found.experiment_id}, {as_of}, from {found.events:,} raw events"
    if found.gone:
        return f"{found.experiment_id}, {as_of}: raw events are gone: {', '.join(found.gone)}"
    if found.equal:
        return f"{subject}: equal to the byte."
    more = found.count - _SHOWN
    return "\n".join(
        [
            f"{subject}: different.",
            *(f"  {difference}" for difference in found.differences[:_SHOWN]),
            *([f"  and {more:,} more"] if more > 0 else []),
        ]
    )
