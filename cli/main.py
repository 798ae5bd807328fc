"""The command line's root: `deploy-reward` and its commands."""

import click


@click.group()
@click.version_option(package_name="deploy-reward")
def main() -> None:
    """Deploy a change to a share of your traffic and be told what to do with it."""
