"""The command `simulate`: a canary's traffic, or a repository of many changes."""

import click

from cli.lazy_group import LazyGroup

COMMANDS = {
    "canary": "cli.traffic.simulate:canary",
    "repository": "cli.repository.command:repository",
}


class Simulations(LazyGroup):
    """A group with a default command, which runs where none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the name of the canary before options that name no command."""
        named = args and (args[0] in self.places or args[0] in self.get_help_option_names(ctx))
        return super().parse_args(ctx, args if named else ["canary", *args])


@click.group("simulate", cls=Simulations, places=COMMANDS)
def simulate() -> None:
    """Send a canary's traffic, or that of many changes.

    `canary` is meant where none is named.
    """
