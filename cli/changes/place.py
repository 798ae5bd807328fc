"""The command `place`: a change asks for a flag or a canary's share, and waits for its turn."""

import time
from pathlib import Path
from urllib.parse import urlencode

import click

from cli.changes.register import flag_of
from cli.changes.wait import TICK_SECONDS, Duration
from cli.operations.options import Share, data_dir_option, project_option
from cli.operations.remote import READING_KEY, Remote, decoded, remote
from domain.document import document_text
from domain.planning.place import Place, PlaceList

# As `wait` ends.
_EXITS = {"promote": 0, "withdraw": 10, "none": 12}
_TIMEOUT = 14


@click.command("place")
@click.option("--flag", metavar="NAME=VALUE", help="The flag that every build has it behind.")
@click.option("--flag-control", metavar="VALUE", help="The flag's value to compare with.")
@click.option("--commit", help="The commit that brings it.")
@click.option("--change", help="The name by which it asks again: a pull request, say.")
@click.option("--metric", "target_metric", help="What it should lift; default: the project's.")
@click.option("--accept-harm", type=Share(0, 1, min_open=True), help="Default: 0.2.")
@click.option("--patience", type=Duration(), help="It has its place so long; default: 1d.")
@click.option("--actor", help="Who, or which agent, asks.")
@click.option("--again", is_flag=True, help="Ask anew where its last place has ended.")
@click.option("--until", type=click.Choice(["placed", "ended"]), help="Wait for that.")
@click.option("--timeout", type=Duration(), default="1d", show_default=True)
@click.option("--every", type=Duration(), default=TICK_SECONDS, help="Between two polls.")
@click.option("--end", "given_back", metavar="PLACE", help="Give a place back instead.")
@click.option("--json", "as_json", is_flag=True, help="Print the place as JSON.")
@project_option
@data_dir_option
def place(
    *,
    flag: str | None,
    flag_control: str | None,
    patience: float | None,
    until: str | None,
    timeout: float,
    every: float,
    given_back: str | None,
    as_json: bool,
    project: str,
    data_dir: Path,
    **chosen: object,
) -> None:
    """Ask for a place for a change: a flag, or a canary's share.

    It is queued where none is free. Asked again in the same words, it says the next step.
    Exits 0 once it has its place, or is to be promoted; 10 where it is to be withdrawn; 12
    where it ended otherwise; 14 where the timeout passed.
    """
    members = {
        **chosen,
        "flag": flag_of(flag, flag_control),
        "patience_hours": None if patience is None else patience / 3600,
    }
    body = {name: value for name, value in members.items() if value is not None}
    path = "/v1/places" if given_back is None else f"/v1/places/{given_back}/end"
    with remote(READING_KEY, data_dir, project=project) as service:
        answer = service.ask("POST", path, body if given_back is None else {})
        asked = decoded(answer.text, Place)
        if until is not None:
            asked = _awaited(service, asked, until=until, timeout=timeout, every=every)
    click.echo(document_text(asked) if as_json else f"{asked.place_id}: {asked.sentence}")
    if asked.state == "ended" and given_back is None:
        raise SystemExit(_EXITS[asked.action])
    if until not in {None, asked.state}:
        raise SystemExit(_TIMEOUT)


def _awaited(service: Remote, place: Place, *, until: str, timeout: float, every: float) -> Place:
    """Returns the place once it is in a state or ended, or as the timeout leaves it."""
    query = urlencode({"change": place.change, "limit": 200})
    deadline = time.monotonic() + timeout
    while place.state not in {until, "ended"} and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(every, left))
        page = decoded(service.ask("GET", f"/v1/places?{query}").text, PlaceList)
        place = next(each for each in page.places if each.place_id == place.place_id)
    return place
