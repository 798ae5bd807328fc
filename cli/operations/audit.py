"""The command `audit`: a served verdict against the raw events."""

from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

import click

from cli.operations.store import data_dir_option, store_url
from domain.contract import document_text
from orchestration.pipeline.audit import Audit
from orchestration.pipeline.audit import audit as audited
from storage.log.lake import LakeError, open_lake
from storage.pipeline.engines.engine import EngineError
from storage.pipeline.experiments import UnreadablePolicyError
from storage.pipeline.inputs import TooManyAssignmentsError
from storage.postgres.engine import open_engine
from storage.postgres.refusal import Missing
from storage.upkeep.raw_events import freeze_reads

_SHOWN = 20


class Exit(IntEnum):
    """What the process ends with."""

    EQUAL = 0
    DIFFERENT = 1
    GONE = 3
    NOT_COMPUTED = 4


class NotComputed(click.ClickException):
    """The verdict could not be recomputed, so nothing was compared."""

    exit_code = Exit.NOT_COMPUTED


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
    events are gone, 4 where the verdict cannot be recomputed.
    """
    with store_url(data_dir) as url:
        engine = open_engine(url, pool_size=1)
        try:
            with explained_failures(experiment), engine.begin() as connection:
                freeze_reads(connection)
                found = audited(connection, experiment, lake=open_lake(data_dir=data_dir))
        except Missing as missing:
            raise click.BadParameter(str(missing), param_hint="EXPERIMENT") from missing
        finally:
            engine.dispose()
    click.echo(_document(found) if as_json else _told(found))
    ctx.exit(_exit(found))


@contextmanager
def explained_failures(experiment: str) -> Generator[None]:
    """Ends the command with a sentence where a known limit keeps it from computing.

    Args:
        experiment: Its id, for commands to type.
    """
    close = f"`deploy-reward close {experiment}` ends it without a verdict"
    try:
        yield
    except UnreadablePolicyError as error:
        raise NotComputed(
            f"{experiment} was registered by another release, whose policy this one cannot read:"
            f" run the release that registered it; {close}."
        ) from error
    except TooManyAssignmentsError as error:
        raise NotComputed(f"{error}: test fewer flags at once; {close}.") from error
    except (EngineError, LakeError) as error:
        raise NotComputed(f"{error}.") from error


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
