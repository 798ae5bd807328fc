"""`doctor`: the set-up checklist of a project, with the fix of each line that is red."""

import json
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cli.operations.options import data_dir_option, project_option
from cli.operations.remote import READING_KEY, RemoteFault, remote
from domain.checklist.line import ChecklistLine

_MARKS = {True: ("✓", "green"), False: ("✗", "bold red"), None: ("?", "yellow")}


@click.command()
@click.option("--now", is_flag=True, help="Look anew, not at what was seen within a minute.")
@click.option("--json", "as_json", is_flag=True, help="Print the checklist for a program.")
@project_option
@data_dir_option
@click.pass_context
def doctor(ctx: click.Context, *, now: bool, project: str, as_json: bool, data_dir: Path) -> None:
    """Check whether a project is wired right, and say what to do.

    Exits with 1 where a line is red. A line with a question mark cannot be judged yet.

    With SERVICE_API_URL the running service is asked, with the project key in
    SERVICE_PROJECT_KEY; without it the store of the data directory, and --project names the
    project.
    """
    with remote(READING_KEY, data_dir, project=project) as service:
        headers = {"Cache-Control": "no-cache"} if now else None
        answer = service.ask("GET", "/v1/reward/checklist", headers=headers)
    try:
        lines = msgspec.convert(answer.body, tuple[ChecklistLine, ...])
    except msgspec.ValidationError:
        raise RemoteFault("the answer is JSON, but not the service's") from None
    if as_json:
        click.echo(json.dumps(answer.body, ensure_ascii=False))
    else:
        _print(lines, answer.age)
    ctx.exit(int(any(line.ok is False for line in lines)))


def _print(lines: Sequence[ChecklistLine], age: float | None) -> None:
    console = Console()
    table = Table(show_header=False, box=None, padding=(0, 1))
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for line in lines:
        mark, style = _MARKS[line.ok]
        cell = Text(line.seen)
        if line.fix:
            cell.append(f"\n→ {line.fix}", style="bold" if line.ok is False else "dim")
        table.add_row(Text(mark, style=style), Text(line.check), cell)
    console.print(table)
    red = sum(line.ok is False for line in lines)
    waiting = sum(line.ok is None for line in lines)
    console.print(Padding(_summary(len(lines), red=red, waiting=waiting), (1, 0, 0, 1)))
    if age is not None:
        said = f" As of {age:.0f} s ago: the service looks once a minute, and at once with --now."
        console.print(said, highlight=False)


def _summary(count: int, *, red: int, waiting: int) -> str:
    if red:
        return f"{red} of {count} red: begin with the first."
    if waiting:
        return f"Nothing is red; {waiting} of {count} cannot be judged yet."
    return f"All {count} are green."
