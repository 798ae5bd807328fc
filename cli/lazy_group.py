"""A group of commands that are imported when they are called, so that `--help` stays quick."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click


class LazyGroup(click.Group):
    """A group that knows its commands by name, and lists those that this distribution holds.

    Args:
        groups: By heading, the commands: by name, where each stands (`module:name`), in the order
            in which users meet them.
    """

    def __init__(
        self,
        *,
        groups: Mapping[str, Mapping[str, str]],
        meant: Mapping[str, Sequence[str]] | None = None,
        **options: Any,  # noqa: ANN401 (click's own)
    ) -> None:
        super().__init__(**options)
        self.groups = groups
        self.places = {name: place for group in groups.values() for name, place in group.items()}
        self.meant = meant or {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """The commands' names."""
        return list(filter(self.is_held, self.places))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name.

        Raises:
            click.UsageError: There is none in this distribution; the message names the nearest.
        """
        if cmd_name not in self.places:
            near = [name for name in self.meant.get(cmd_name, ()) if self.is_held(name)]
            near = near or get_close_matches(cmd_name, self.list_commands(ctx), n=1)
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise click.UsageError(f"No such command {cmd_name!r}.{hint} --help lists all.")
        if not self.is_held(cmd_name):
            raise click.UsageError(f"{cmd_name} is a command of the service: install deploy-reward")
        module, name = self.places[cmd_name].split(":")
        return getattr(import_module(module), name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by group, without importing them."""
        held = {*self.list_commands(ctx)}
        for heading, group in self.groups.items():
            if names := [name for name in group if name in held]:
                with formatter.section(heading):
                    rows = [(name, _first_line(group[name])) for name in names]
                    formatter.write_dl(rows)

    def is_held(self, command: str) -> bool:
        """Tells whether this distribution holds it: the client holds those that speak HTTP."""
        module = self.places[command].partition(":")[0]
        room = module.rpartition(".")[0]
        # find_spec raises where the module's room is missing.
        return find_spec(room) is not None and find_spec(module) is not None


def _first_line(place: str) -> str:
    """Returns the first line of a command's docstring, of its source: to import it takes long."""
    module, _, name = place.partition(":")
    spec = find_spec(module)
    source = "" if spec is None or spec.origin is None else Path(spec.origin).read_text()
    docstring = re.search(rf'^def {name}\(.*?"""([^"\n]+)', source, re.MULTILINE | re.DOTALL)
    return "" if docstring is None else docstring[1]
