"""A repository: days of a team's changes against a service of the simulation's own.

It drives that service over HTTP: a store with a clock that it moves, the API, and the pipeline's
steps. `python -m benchmarks.repository --help` lists what may be chosen.
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import numpy as np
from canary_traffic.interruption import interruptible
from rich.console import Console
from rich.progress import track

from benchmarks.repository.change import Author
from benchmarks.repository.private_service import private_service
from benchmarks.repository.report import Report, rows
from benchmarks.repository.sessions import METRIC, Sessions
from benchmarks.repository.team import LOOK_MINUTES, Rules, Team
from cli.operations.options import Share
from cli.table import table

_DAY = 1440


@click.command()
@click.option("--commits-per-day", type=click.FloatRange(min=0), default=20.0, show_default=True)
@click.option(
    "--flags",
    type=click.IntRange(0, 500),
    default=25,
    show_default=True,
    help="The project's flag_places, each on for half of the sessions.",
)
@click.option(
    "--sessions-per-day", type=click.FloatRange(min=1440), default=50_000.0, show_default=True
)
@click.option(
    "--rate",
    type=Share(0, 0.5),
    default=0.2,
    show_default=True,
    help="Of the sessions that convert on the standing build, whatever was promoted before.",
)
@click.option("--days", type=click.FloatRange(min=0.1, max=30), default=3.0, show_default=True)
@click.option(
    "--patience-hours",
    type=click.FloatRange(min=0.5),
    default=24.0,
    show_default=True,
    help="Then a change without an answer is dropped.",
)
@click.option(
    "--accept-harm",
    "accepted_harm",
    type=Share(0, 1),
    default=0.2,
    show_default=True,
    help="A change is merged once a greater loss of the rate is excluded, as `wait` does it.",
)
@click.option("--hotfixes-per-day", type=click.FloatRange(min=0), default=0.5, show_default=True)
@click.option(
    "--harmful",
    type=Share(0, 1),
    default=0.025,
    show_default=True,
    help="Share of changes that halve the conversion rate.",
)
@click.option(
    "--remote-evaluation",
    type=Share(0, 1),
    default=0.02,
    show_default=True,
    help="Share of sessions that ask the service for their arms (OFREP); the others draw them.",
)
@click.option("--seed", type=int, default=0, help="The same seed draws the same changes.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with a row for each change.")
def repository(
    *,
    sessions_per_day: float,
    rate: float,
    days: float,
    flags: int,
    harmful: float,
    remote_evaluation: float,
    seed: int,
    as_json: bool,
    **rules: Any,
) -> None:
    """Let a team ship many changes for some days, and report the answers.

    Starts a service of its own, whose clock it moves: nothing that runs here is touched. Each
    commit asks for a place, and is served behind a flag or as a canary on the build that most users
    have, as the place says; who is promoted leaves the other canaries to be rebased. Seven in ten
    changes do nothing, and the other effects are drawn around 0 with a standard deviation of 10 %.
    """
    generator = np.random.default_rng(seed)
    minutes = round(days * _DAY)
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    start = now - timedelta(minutes=minutes + now.minute % 5)
    console = Console(stderr=as_json)
    settings: dict[str, object] = {
        "flag_places": flags,
        "default_metric": METRIC,
        "verified_draws": True,
        "ofrep": "server",
    }
    with private_service(start, **settings) as service, interruptible():
        team = Team(
            service=service,
            author=Author(generator=generator, harmful=harmful),
            rules=Rules(**rules),
            generator=generator,
            baseline=rate,
        )
        sessions = Sessions(
            per_day=sessions_per_day,
            start=start,
            generator=generator,
            evaluate=service.evaluate,
            evaluated=remote_evaluation,
        )
        lasted = _lived(team, sessions, minutes=minutes, console=console)
    # The CPU of its processes is known once they have ended.
    document = Report(team=team, sessions=sessions, days=lasted / _DAY).document()
    if as_json:
        click.echo(json.dumps(document))
    else:
        console.print(table(rows(document), title="A simulated repository"))


def _lived(team: Team, sessions: Sessions, *, minutes: int, console: Console) -> int:
    """Lets the minutes pass, or as many as come before an interrupt; returns how many did."""
    team.begin(sessions.start)
    for minute in track(range(minutes), "minutes of the repository", console=console):
        try:
            _pass_minute(team, sessions, minute)
        except KeyboardInterrupt:
            return minute
    team.finish(minutes)
    return minutes


def _pass_minute(team: Team, sessions: Sessions, minute: int) -> None:
    served = team.served()
    # What happened in a minute arrives at its end.
    end = sessions.start + timedelta(minutes=minute + 1)
    team.service.clock.move(end)
    team.service.post_events(sessions.events(minute, served))
    team.pass_minute(minute, served)
    if (minute + 1) % LOOK_MINUTES == 0:
        team.service.look()
        team.act(minute + 1, end)


if __name__ == "__main__":
    repository()
