"""The command `wait`: a gate for CI, whose exit code says what to do with the change."""

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from cli.changes.experiment import Experiment, registration_of, situation_of
from cli.changes.experiment import experiment as reached
from cli.changes.outcome import UNIT_SECONDS, Outcome, Poll, outcome, while_frozen
from cli.changes.report import junit, markdown
from cli.operations.options import Share, data_dir_option
from cli.operations.remote import RemoteFault, decoded
from domain.contract import Contract
from domain.evidence.document import evidence_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from mcp_server.client import Answer

# Any tick may publish a change, whenever the target's next look is.
TICK_SECONDS = 60.0
OUTAGE_SECONDS = 300.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)", re.ASCII)


class Duration(click.ParamType[float]):
    """A length of time: 90, 90s, 30m, 2h or 1d."""

    name = "duration"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Returns seconds."""
        if isinstance(value, float):
            return value
        if (match := _DURATION.fullmatch(str(value).strip())) is None:
            self.fail(f"{value!r} is no length of time, such as 90s, 30m, 2h or 1d", param, ctx)
        return float(match[1]) * UNIT_SECONDS[match[2]]


@click.command("wait")
@click.argument("experiment")
@click.option(
    "--timeout",
    type=Duration(),
    default="1d",
    show_default=True,
    help="How long to wait at most: 90s, 30m, 2h, 1d; 0 asks once.",
)
@click.option(
    "--accept-harm",
    type=Share(0, 1, min_open=True),
    metavar="SHARE",
    help="Also pass once a loss beyond this share of the control rate is excluded: 0.2, say.",
)
@click.option(
    "--every",
    type=Duration(),
    default="5s",
    show_default=True,
    help="The least time between two polls; the service's Retry-After may make it longer.",
)
@click.option(
    "--summary",
    type=click.Path(dir_okay=False, path_type=Path),
    help='Append a summary in Markdown to this file: "$GITHUB_STEP_SUMMARY", say.',
)
@click.option(
    "--junit",
    "junit_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the end as a JUnit suite to this file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict contract at the end.")
@data_dir_option
def wait(
    experiment: str,
    *,
    timeout: float,
    accept_harm: float | None,
    every: float,
    summary: Path | None,
    junit_file: Path | None,
    as_json: bool,
    data_dir: Path,
) -> None:
    """Wait for a verdict, and exit with it.

    The first line that holds counts:

    \b
     0  keep
    10  rollback
    11  iterate
    13  a guardrail is breached while the verdict abstains
    15  a fault of the set-up: non_identifiable, interacting, no events, or
        arrival alone breached at a steady ratio
     0  --accept-harm: a greater loss is excluded, and nothing of the above holds
    12  closed without a verdict
    14  the timeout passed, or the service is frozen at its end

    1 says that the service could not be reached, 2 that the command was called wrongly.

    Asks SERVICE_API_URL with the project key in SERVICE_PROJECT_KEY where the address is set,
    else the store.
    """  # noqa: D301 - click reads the character, by which it keeps the table's lines
    with reached(experiment, data_dir) as handle:
        poll, contract, end = _waited(handle, timeout=timeout, every=every, accept_harm=accept_harm)
    if summary is not None:
        base = os.environ.get("SERVICE_PUBLIC_URL") or os.environ.get("SERVICE_API_URL")
        address = f"{base.rstrip('/')}/dashboard/experiments/{experiment}" if base else None
        with summary.open("a") as file:
            file.write(markdown(poll, end, address=address))
    if junit_file is not None:
        junit_file.write_bytes(junit(poll, end))
    if as_json:
        click.echo(contract)
        click.echo(end.because, err=True)
    else:
        click.echo(poll.sentence)
        click.echo(end.because)
    raise SystemExit(end.exit)


def pause(retry_after: float | None, *, every: float, left: float) -> float:
    """Seconds until the next poll: as the service says, a tick at most, and never too late."""
    return min(max(every, min(retry_after or 0.0, TICK_SECONDS)), left)


def _waited(
    handle: Experiment, *, timeout: float, every: float, accept_harm: float | None
) -> tuple[Poll, str, Outcome]:
    """Returns the last poll, its contract to the byte, and how the gate ends."""
    began, answered = time.monotonic(), None
    with _Progress() as progress:
        while True:
            try:
                poll, contract = _polled(handle)
            except RemoteFault as fault:
                now = time.monotonic()
                left = began + timeout - now
                # A restart of the service, not an address that was wrong from the beginning.
                is_outage = answered is not None and now - answered < OUTAGE_SECONDS
                if not (fault.passing and is_outage) or left <= 0:
                    raise
                progress.say(f"{fault.message}; asking again")
                time.sleep(min(max(every, fault.retry_after or 0), left))
                continue
            answered = time.monotonic()
            waited = answered - began
            end = outcome(poll, accept_harm=accept_harm, waited=waited, timeout=timeout)
            # Asked for where it matters only; a freeze holds whatever there is to act on.
            frozen = None if end is None else handle.freeze()
            if frozen is not None:
                end = while_frozen(frozen, timeout) if waited >= timeout else None
            if end is not None:
                return poll, contract.text, end
            progress.say(poll.sentence if frozen is None else f"Frozen: {frozen}")
            time.sleep(pause(contract.retry_after, every=every, left=timeout - waited))


def _polled(handle: Experiment) -> tuple[Poll, "Answer"]:
    # Evidence first: a breach that came with it then stands in the contract.
    evidence = handle.evidence()
    contract = handle.contract()
    answer, known = decoded(contract.text, Contract), evidence_of(evidence)
    registration = None if answer.decided else registration_of(handle)
    beside = situation_of(registration, answer, looked_at=known is not None)
    return Poll(contract=answer, evidence=known, beside=beside), contract


class _Progress:
    """A line on stderr: kept up to date in a terminal, in a log repeated when it changes."""

    def __init__(self) -> None:
        self._console: Console | None = None
        self._status: Status | None = None
        self._said = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, text: str) -> None:
        """Shows a line, unless it is shown already."""
        if text == self._said:
            return
        self._said = text
        if self._console is None:
            # An answer that comes at once is printed without rich, which is half of the start.
            from rich.console import Console  # noqa: PLC0415

            self._console = Console(stderr=True)
        if not self._console.is_terminal:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)
            return
        from rich.text import Text  # noqa: PLC0415 - as above

        line = Text(text, no_wrap=True, overflow="ellipsis")
        if self._status is None:
            self._status = self._console.status(line)
            self._status.start()
        else:
            self._status.update(line)
