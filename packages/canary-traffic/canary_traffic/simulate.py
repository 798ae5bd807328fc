"""The command `simulate`: a canary's traffic, against a running service."""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import click
import httpx2
import numpy as np
from rich.console import Console
from rich.progress import Progress

from canary_traffic.canary import Scenario, Traffic, traffic
from canary_traffic.interruption import INTERRUPTED, interruptible
from canary_traffic.posting import (
    Batch,
    Delivery,
    NoAnswer,
    Posted,
    Refused,
    answer,
    batches,
    connected,
    deploy_body,
    post,
)
from cli.table import table
from storage.tenants.sample import Sample

CONNECTIONS = 4
# For the first answer of all, seconds.
FIRST_PATIENCE_SECONDS = 3.0
# Live events are gathered for this long before they go out together.
GATHERING = timedelta(seconds=1)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The result of a simulation.

    Attributes:
        document: The sums of the receipts, as plain JSON values.
        interrupted: Whether it was ended before its time.
        sample: The units that the service measures; None for all.
    """

    document: dict[str, Any]
    interrupted: bool
    sample: Sample | None


@click.command("simulate", context_settings={"show_default": True})
@click.option(
    "--api-url",
    envvar="SERVICE_API_URL",
    default="http://127.0.0.1:8000",
    help="Where the service is; SERVICE_API_URL.",
)
@click.option(
    "--key", required=True, help="The write key; a public key does for --live without --deploys."
)
@click.option("--replay/--live", default=True, help="Past events at once, or as time passes.")
@click.option(
    "--hours",
    type=click.FloatRange(min=0, min_open=True),
    default=24.0,
    help="How long the canary lasts.",
)
@click.option(
    "--sessions-per-day",
    type=click.FloatRange(min=1),
    default=24_000.0,
    help="Sessions of both builds in a day.",
)
@click.option("--baseline", type=float, default=0.05, help="Control's conversion rate.")
@click.option(
    "--lift", "relative_lift", type=float, default=0.0, help="Relative lift: 0.2 is 20 % more."
)
@click.option(
    "--share", "allocation", type=float, default=0.5, help="Treatment's share of sessions."
)
@click.option(
    "--ramp",
    multiple=True,
    metavar="HOURS:SHARE",
    help="A step of the ramp: hours after the start, and the share from then on. Repeatable.",
)
@click.option("--rhythm", type=float, default=0.0, help="Amplitude of the day's rhythm, 0 to 1.")
@click.option("--control", default="c0ffee0", help="Commit of control.")
@click.option("--treatment", default="bada550", help="Commit of treatment.")
@click.option("--deploys/--no-deploys", default=False, help="Record both deploys and the ramp.")
@click.option("--environment", default="production", help="Where the traffic is.")
@click.option("--metric", default="activation", help="Name of the converting event.")
@click.option(
    "--route", "routes", multiple=True, default=["/"], help="Route of the pages; repeatable."
)
@click.option("--pages", type=float, default=1.0, help="Mean pages a session sees.")
@click.option(
    "--errors",
    type=(float, float),
    default=(0.0, 0.0),
    help="Share of sessions with an `error` event: of control, of treatment.",
)
@click.option("--duplicated", type=float, default=0.0, help="Share of events sent twice.")
@click.option("--disordered", type=float, default=0.0, help="Share of events held for seconds.")
@click.option("--late", type=float, default=0.0, help="Share of events held back for --lateness.")
@click.option(
    "--lateness", type=float, default=45.0, help="Minutes; by receipt, with --live alone."
)
@click.option("--seed", type=int, default=0, help="The same seed draws the same traffic.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def simulate(
    *,
    api_url: str,
    key: str,
    replay: bool,
    hours: float,
    ramp: tuple[str, ...],
    deploys: bool,
    errors: tuple[float, float],
    lateness: float,
    seed: int,
    as_json: bool,
    **members: Any,  # noqa: ANN401 - of the scenario, as its options are named
) -> None:
    """Send a randomized canary's traffic.

    A replay ends half an hour ago and goes out at once; live traffic begins now, takes as long as
    it says, and goes on until the last conversion.
    The truth is printed, so that a verdict can be held against it. Ctrl-C ends it with the
    summary so far.
    """
    _require_key(key, replay=replay, deploys=deploys)
    length = timedelta(hours=hours)
    # Whole seconds: a deploy is identified by its time.
    now = datetime.now(UTC).replace(microsecond=0)
    # The last session of a replay has had its whole window: the truth is what was sent.
    start = now - length - Scenario.window if replay else now
    try:
        scenario = Scenario(
            start=start,
            end=start + length,
            ramp=tuple(_step(step, start) for step in ramp),
            control_errors=errors[0],
            treatment_errors=errors[1],
            lateness=timedelta(minutes=lateness),
            # Two runs share no session, or they would be counted together.
            session_prefix=f"{int(start.timestamp()):x}-{seed}-",
            **members,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    run = traffic(scenario, np.random.default_rng(seed))
    console = Console(stderr=as_json)
    with connected(api_url, connections=CONNECTIONS) as client:
        require_service(client)
        if deploys:
            record_deploys(client, scenario, key=key)
        summary = sent(client, run, key=key, replay=replay, console=console)
    if as_json:
        click.echo(json.dumps(_machine(summary, run)))
    else:
        title = "Simulated traffic, interrupted" if summary.interrupted else "Simulated traffic"
        console.print(table(_rows(summary, run), title=title))
    if summary.interrupted:
        sys.exit(INTERRUPTED)


def _require_key(key: str, *, replay: bool, deploys: bool) -> None:
    """Refuses a key with which the service would refuse the first request.

    Raises:
        click.UsageError: It is of another kind.
    """
    if key.startswith("rk_"):
        raise click.UsageError(
            "--key is a project key (rk_...): traffic needs the write key (wk_...)"
        )
    needing = {"--replay": replay, "--deploys": deploys}
    names = [name for name, chosen in needing.items() if chosen]
    if names and key.startswith("pk_"):
        verb = "needs" if len(names) == 1 else "need"
        raise click.UsageError(
            f"--key is a public key (pk_...), but {' and '.join(names)} {verb} the write key"
            " (wk_...); a public key does with --live alone"
        )


def require_service(client: httpx2.Client) -> None:
    """Refuses an address where nothing answers, before any patience with a service that restarts.

    Raises:
        click.ClickException: Nothing of ours answers there.
    """
    try:
        answer(client, "GET", "/healthz", key="", patience=FIRST_PATIENCE_SECONDS)
    except NoAnswer:
        origin = str(client.base_url).rstrip("/")
        raise click.ClickException(
            f"no service answers at {origin}: start it with `deploy-reward up`, or name its"
            " address with --api-url or SERVICE_API_URL"
        ) from None
    except Refused:
        # It answers: the requests that follow say what it is.
        return


def record_deploys(client: httpx2.Client, scenario: Scenario, *, key: str) -> None:
    """Record control's deploy, a minute before the start, and each step of treatment's ramp."""
    before = scenario.start - timedelta(minutes=1)
    steps = ((scenario.start, scenario.allocation), *scenario.ramp)
    bodies = [
        deploy_body(scenario.control, before),
        *(
            deploy_body(scenario.treatment, at, base=scenario.control, allocation=share)
            for at, share in steps
        ),
    ]
    for body in bodies:
        named = body | {"environment": scenario.environment}
        answer(client, "POST", "/v1/deploys", key=key, body=named)


def sent(
    client: httpx2.Client, run: Traffic, *, key: str, replay: bool, console: Console
) -> Summary:
    """Send traffic, with a bar on the console, and return its result.

    Args:
        client: A client of the service.
        key: Write or public key; a replay needs the write key.
        replay: Store the events as received when they occurred, and send them at once.
        console: Where the bar is drawn.

    Raises:
        Refused: If the service refuses a batch.
    """
    deliveries = run.deliveries()
    now = datetime.now(UTC)
    # Some conversions would come long after it.
    happened = (
        delivery
        for delivery in deliveries
        if datetime.fromisoformat(delivery.body["occurred_at"]) <= now
    )
    posted, interrupted, began = Posted(), False, time.monotonic()
    with Progress(console=console, transient=True) as progress, interruptible():
        bar = progress.add_task("events", total=len(run))
        posted.advance = partial(progress.advance, bar)
        try:
            post(
                client,
                batches(happened) if replay else _gathered(deliveries),
                key=key,
                replay=replay,
                posted=posted,
                paced=not replay,
                connections=CONNECTIONS,
            )
        except KeyboardInterrupt:
            interrupted = True
    return Summary(
        document={**posted.counts, "seconds": round(time.monotonic() - began, 3)},
        interrupted=interrupted,
        sample=None if posted.sampling is None else _sample(posted.sampling),
    )


def _sample(document: Mapping[str, Any]) -> Sample:
    """Returns the sample that a sender was given."""
    rates = {kind: document[kind] for kind in ("session", "user") if kind in document}
    return Sample(salt=document["salt"], rates=rates)


def _step(text: str, start: datetime) -> tuple[datetime, float]:
    hours, _, share = text.partition(":")
    try:
        after, then = timedelta(hours=float(hours)), float(share)
    except (ValueError, OverflowError):
        raise click.UsageError(f"--ramp is {text!r}; it must be HOURS:SHARE, as 6:0.5") from None
    if after <= timedelta(0):
        raise click.UsageError(
            f"--ramp is {text!r}: a step comes after the start, at which --share holds"
        )
    return start + after, then


def _gathered(deliveries: Iterable[Delivery]) -> Iterator[Batch]:
    """Batches that span a second at most, so that live events arrive about when they occur."""
    second: list[Delivery] = []
    for delivery in deliveries:
        if second and delivery.at - second[0].at > GATHERING:
            yield from batches(second)
            second = []
        second.append(delivery)
    yield from batches(second)


def _machine(summary: Summary, run: Traffic) -> dict[str, object]:
    return {
        **summary.document,
        "interrupted": summary.interrupted,
        "sessions": run.sessions,
        "control": run.scenario.control,
        "treatment": run.scenario.treatment,
        "start": run.scenario.start.isoformat(),
        "truth": {arm: asdict(counts) for arm, counts in run.truth().items()},
        "sampled_truth": None
        if summary.sample is None
        else {arm: asdict(counts) for arm, counts in run.truth(summary.sample).items()},
    }


def _rows(summary: Summary, run: Traffic) -> Iterator[tuple[str, str]]:
    for name, value in summary.document.items():
        yield name.replace("_", " "), f"{value:,}"
    truths = {"truth": run.truth()}
    if summary.sample is not None:
        truths["truth in the sample"] = run.truth(summary.sample)
    for name, truth in truths.items():
        for arm, true in truth.items():
            sessions = f"{true.conversions:,} of {true.units:,} sessions"
            yield f"{name}, {arm}", f"{sessions} ({true.rate:.2%})"
