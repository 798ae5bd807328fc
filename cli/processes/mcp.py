"""The command `mcp`: the reward endpoints as MCP tools over stdio."""

import click

from mcp_server.server import run


@click.command("mcp")
def mcp() -> None:
    """Serve the reward endpoints as MCP tools over stdio.

    Reads SERVICE_API_URL and SERVICE_PROJECT_KEY from the environment, and speaks JSON-RPC on
    stdin and stdout until stdin closes.
    """
    run()
