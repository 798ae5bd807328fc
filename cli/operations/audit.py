"""The command `audit`: a served verdict against the raw events."""

from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

import click

from cli.operations.options import data_dir_option
from cli.operations.store import store_engine
from domain.document import document_text
from domain.policy import UnreadablePolicyError
from orchestration.pipeline.audit import Audit
from orchestration.pipeline.audit import audit as audited
from storage.lake.lake import store_lake
from storage.log.file_errors import LakeError
from storage.pipeline.engines.engine import EngineError
from storage.pipeline.inputs import TooManyAssignmentsError
from storage.postgres.refusal import Missing

_SHOWN = 20


class Exit(IntEnum):
    """The exit codes of the process."""

    EQUAL = 0
    DIFFERENT = 1
    GONE = 3
    NOT_COMPUTED = 4


class NotComputed(click.ClickException):
    """The verdict could not be recomputed, so nothing was compared."""

    exit_code = Exit.NOT_COMPUTED


@click.command("audit")
@click.argument("experiment")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@data_dir_option
@click.pass_context
def audit(ctx: click.Context, experiment: str, as_json: bool, data_dir: Path) -> None:
    """Recompute a verdict from raw events and compare.

    DuckDB recomputes it at once, where the service computed it minute by minute in PostgreSQL.
    Exposures, outcomes, cells, evidence and contract are compared to the byte, as of the verdict's
    own look; of evidence that another release published, all but its words. Exits with 0 where they
    are equal, 1 where they differ, 3 where the raw events are gone, 4 where the verdict cannot be
    recomputed.
    """
    try:
        with store_engine(data_dir) as engine, explained_failures(experiment):
            lake = store_lake(engine, data_dir=data_dir)
            result = audited(engine, experiment, lake=lake)
    except Missing as missing:
        raise click.BadParameter(str(missing), param_hint="EXPERIMENT") from missing
    click.echo(_document(result) if as_json else _as_text(result))
    ctx.exit(_exit(result))


@contextmanager
def explained_failures(experiment: str) -> Generator[None]:
    """Ends the command with a sentence where a known limit keeps it from computing."""
    close = f"`deploy-reward close {experiment}` ends it without a verdict"
    try:
        yield
    except UnreadablePolicyError as error:
        raise NotComputed(
            f"{experiment} was registered by another release, whose policy this release cannot"
            f" read: run the release that registered it; {close}."
        ) from error
    except TooManyAssignmentsError as error:
        raise NotComputed(f"{error}: test fewer flags at once; {close}.") from error
    except (EngineError, LakeError) as error:
        raise NotComputed(f"{error}.") from error


def _exit(result: Audit) -> Exit:
    if result.gone:
        return Exit.GONE
    return Exit.DIFFERENT if result.differences else Exit.EQUAL


def _document(result: Audit) -> str:
    return document_text(
        {
            "experiment_id": result.experiment_id,
            "as_of": None if result.as_of is None else result.as_of.isoformat(),
            "equal": result.equal,
            "events": result.events,
            "gone": list(result.gone),
            "touched": list(result.touched),
            "difference_count": len(result.differences),
            "differences": list(result.differences),
        }
    )


def _as_text(result: Audit) -> str:
    as_of = "before its first look" if result.as_of is None else f"as of {result.as_of.isoformat()}"
    subject = f"{result.experiment_id}, {as_of}, from {result.events:,} raw events"
    touched = [f"  not compared: {each}" for each in result.touched]
    if result.equal:
        return "\n".join([f"{subject}: equal to the byte.", *touched])
    if result.gone:
        gone = f"{result.experiment_id}, {as_of}: raw events are gone: {', '.join(result.gone)}"
        return "\n".join([gone, *(f"  {each}" for each in result.differences), *touched])
    more = len(result.differences) - _SHOWN
    return "\n".join(
        [
            f"{subject}: different.",
            *(f"  {difference}" for difference in result.differences[:_SHOWN]),
            *([f"  and {more:,} more"] if more > 0 else []),
            *touched,
        ]
    )
