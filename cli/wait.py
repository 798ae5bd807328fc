"""The command `wait`: a gate for CI, whose exit code says what to do with the change."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Self

import click
from rich.console import Console
from rich.text import Text

from cli.experiment import Contract, Experiment
from cli.experiment import experiment as reached
from cli.remote import RemoteFault
from cli.store import data_dir_option
from storage.release_gate import excludes_loss

# What was published can change with each tick, whatever the next look of the target is.
TICK_SECONDS = 60.0
OUTAGE_SECONDS = 300.0
# A block, the window of `error`, the grace, and three minutes: by then traffic has had a look.
FIRST_LOOK_SECONDS = 900.0
# Fewer units without a conversion are no sign that the metric is misspelt.
UNITS_TO_MISS_A_METRIC = 1000

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)", re.ASCII)
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class Exit(IntEnum):
    """What the process ends with."""

    KEEP = 0
    ROLLBACK = 10
    ITERATE = 11
    CLOSED = 12
    BREACHED = 13
    TIMEOUT = 14
    FAULT = 15


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one poll saw.

    Attributes:
        contract: The verdict contract.
        evidence: The evidence document, never newer than the contract; empty before any look.
    """

    contract: Mapping[str, Any]
    evidence: Mapping[str, Any]

    @property
    def decided(self) -> bool:
        """Whether the verdict is final."""
        return self.contract["power_state"]["decided"]

    @property
    def sentence(self) -> str:
        """What is known, for a person."""
        waiting = "No look yet: no block of exposed units has closed."
        return str(self.evidence.get("sentence", waiting))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the gate ends, and why."""

    exit: Exit
    because: str


class Duration(click.ParamType[float]):
    """A length of time: 90, 90s, 30m, 2h or 1d."""

    name = "duration"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Returns seconds."""
        if isinstance(value, float):
            return value
        if (found := _DURATION.fullmatch(str(value).strip())) is None:
            self.fail(f"{value!r} is no length of time, such as 90s, 30m, 2h or 1d", param, ctx)
        return float(found[1]) * _UNITS[found[2]]


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
    type=click.FloatRange(0, 1, min_open=True),
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
@click.option("--json", "as_json", is_flag=True, help="Print the verdict contract at the end.")
@data_dir_option
def wait(
    experiment: str,
    *,
    timeout: float,
    accept_harm: float | None,
    every: float,
    as_json: bool,
    data_dir: Path,
) -> None:
    r"""Wait for a verdict, and exit with it.

    The first line that holds counts:

    \b
     0  keep
    10  rollback
    11  iterate
    13  a guardrail is breached while the verdict abstains
    15  a fault of the set-up: non_identifiable, interacting, or no events
     0  --accept-harm: a greater loss is excluded, and nothing of the above holds
    12  closed without a verdict
    14  the timeout passed, or the service is frozen at its end

    1 says that nobody could be asked, 2 that the command was called wrongly.

    Asks SERVICE_API_URL with the project key in SERVICE_PROJECT_KEY where the address is set,
    else the store.
    """
    with reached(experiment, data_dir) as found:
        seen, contract, end = _waited(found, timeout=timeout, every=every, accept_harm=accept_harm)
    if as_json:
        click.echo(contract)
        click.echo(end.because, err=True)
    else:
        click.echo(seen.sentence)
        click.echo(end.because)
    raise SystemExit(end.exit)


def outcome(
    seen: Seen, *, accept_harm: float | None, waited: float, timeout: float
) -> Outcome | None:
    """How the gate ends with what was seen; None where it is still to wait.

    A verdict goes before everything. A breach goes before a fault of the set-up, since it may be
    why the arms came apart; both go before an accepted harm, whose interval they make worthless.

    Args:
        seen: The last poll.
        accept_harm: The accepted loss, as a share of the control rate; None accepts none.
        waited: Seconds since the first poll.
        timeout: Seconds to wait.
    """
    last = waited >= timeout
    return (
        _verdict(seen)
        or _breach(seen)
        or _fault(seen, last=seen.decided or last, waited=waited)
        or _accepted(seen, accept_harm)
        or _closed(seen)
        or (_timed_out(timeout) if last else None)
    )


def _verdict(seen: Seen) -> Outcome | None:
    contract = seen.contract
    breaches = ", ".join(contract["guardrail_breaches"])
    ends = {
        "keep": Outcome(exit=Exit.KEEP, because="keep: ship the treatment."),
        "rollback": Outcome(exit=Exit.ROLLBACK, because="rollback: revert the treatment."),
        "iterate": Outcome(
            exit=Exit.ITERATE, because=f"iterate: it helps, but harms {breaches or 'a guardrail'}."
        ),
    }
    return ends.get(contract["verdict"])


def _breach(seen: Seen) -> Outcome | None:
    if not (breaches := seen.contract["guardrail_breaches"]):
        return None
    return Outcome(
        exit=Exit.BREACHED, because=f"breached without a verdict: {', '.join(breaches)}."
    )


def _fault(seen: Seen, *, last: bool, waited: float) -> Outcome | None:
    """A set-up from which no verdict can come; that nothing came is only known at the end."""
    reason = seen.contract["abstain_reason"]
    faults = {
        "non_identifiable": f"non_identifiable: {_aliased(seen)}.",
        "interacting": f"interacting: {_interacting(seen)}.",
    }
    said = faults.get(reason) or (_silence(seen, waited=waited) if last else None)
    return None if said is None else Outcome(exit=Exit.FAULT, because=said)


def _aliased(seen: Seen) -> str:
    names = seen.evidence.get("gates", {}).get("aliased_with", [])
    beside = f" from {', '.join(name[:12] for name in names)}" if names else ""
    return f"the change cannot be told apart{beside}; serve both arms side by side"


def _interacting(seen: Seen) -> str:
    causes = seen.evidence.get("gates", {}).get("interacting_because", [])
    told = ", ".join(str(cause).replace("_", " ") for cause in causes)
    return f"the arms cannot be compared{f' ({told})' if told else ''}; see explain"


def _silence(seen: Seen, *, waited: float) -> str | None:
    """What did not come, by the end of the wait or of the experiment."""
    counts = seen.evidence.get("counts", {})
    if not counts.get("in_cells") and (seen.decided or waited >= FIRST_LOOK_SECONDS):
        if counts.get("unknown_commit"):
            return (
                "no events of a known commit: the deploy of the commit that they name is missing."
            )
        if not counts.get("open"):
            return "no events: no exposed unit was counted; check the events' route and commit."
    never_seen = "metric_never_seen" in seen.evidence.get("warnings", ())
    if never_seen and counts.get("in_cells", 0) >= UNITS_TO_MISS_A_METRIC:
        return "no events of the target metric; check its name and its sources."
    return None


def _accepted(seen: Seen, accept_harm: float | None) -> Outcome | None:
    """Whether a loss beyond the accepted one is excluded."""
    if accept_harm is None or not excludes_loss(seen.evidence, accept_harm):
        return None
    said = f"accepted: a loss beyond {100 * accept_harm:g} % of the control rate is excluded."
    return Outcome(exit=Exit.KEEP, because=said)


def _closed(seen: Seen) -> Outcome | None:
    if not seen.decided:
        return None
    why = seen.evidence.get("ended_because")
    return Outcome(
        exit=Exit.CLOSED, because=f"closed without a verdict{f': {why}' if why else ''}."
    )


def _timed_out(timeout: float) -> Outcome:
    return Outcome(exit=Exit.TIMEOUT, because=f"no verdict within {span(timeout)}.")


def _frozen(reason: str, timeout: float) -> Outcome:
    because = f"frozen: {reason}. Nothing was to be acted on within {span(timeout)}."
    return Outcome(exit=Exit.TIMEOUT, because=because)


def pause(retry_after: float | None, *, every: float, left: float) -> float:
    """Seconds until the next poll: as the service says, a tick at most, and never too late.

    Args:
        retry_after: Seconds until the next look can come, where the service says so.
        every: The least time between two polls.
        left: Seconds until the timeout.
    """
    return min(max(every, min(retry_after or 0.0, TICK_SECONDS)), left)


def span(seconds: float) -> str:
    """A length of time in its largest fitting unit."""
    for unit in "dhm":
        if seconds >= _UNITS[unit]:
            return f"{seconds / _UNITS[unit]:.3g} {unit}"
    return f"{seconds:.3g} s"


def _waited(
    found: Experiment, *, timeout: float, every: float, accept_harm: float | None
) -> tuple[Seen, str, Outcome]:
    """Returns what was seen last, its contract to the byte, and how it ends.

    Raises:
        RemoteFault: Nobody could be asked at first, or for too long since.
    """
    began, answered = time.monotonic(), None
    with _Progress() as progress:
        while True:
            try:
                seen, contract = _seen(found)
            except RemoteFault as fault:
                left = began + timeout - time.monotonic()
                if not _passing(fault, answered) or left <= 0:
                    raise
                progress.say(f"{fault.message}; asking again")
                time.sleep(min(max(every, fault.retry_after or 0), left))
                continue
            answered = time.monotonic()
            waited = answered - began
            end = outcome(seen, accept_harm=accept_harm, waited=waited, timeout=timeout)
            # Asked for where it matters only; a freeze holds whatever there is to act on.
            frozen = None if end is None else found.freeze()
            if frozen is not None:
                end = _frozen(frozen, timeout) if waited >= timeout else None
            if end is not None:
                return seen, contract.text, end
            progress.say(seen.sentence if frozen is None else f"Frozen: {frozen}")
            time.sleep(pause(contract.retry_after, every=every, left=timeout - waited))


def _passing(fault: RemoteFault, answered: float | None) -> bool:
    """Tells a restart of the service from an address that was wrong from the beginning."""
    if not fault.passing or answered is None:
        return False
    return time.monotonic() - answered < OUTAGE_SECONDS


def _seen(found: Experiment) -> tuple[Seen, Contract]:
    # Evidence first: a breach that came with it then stands in the contract.
    evidence = found.evidence()
    contract = found.contract()
    seen = Seen(
        contract=json.loads(contract.text),
        evidence={} if evidence is None else json.loads(evidence),
    )
    return seen, contract


class _Progress:
    """One line on stderr: kept up to date in a terminal, in a log repeated when it changes."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._status = self._console.status("")
        self._said = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def say(self, text: str) -> None:
        """Shows a line, unless it is the one that is shown."""
        if text == self._said:
            return
        self._said = text
        if self._console.is_terminal:
            self._status.update(Text(text, no_wrap=True, overflow="ellipsis"))
            self._status.start()
        else:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)
