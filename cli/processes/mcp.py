"""The command `mcp`: the reward endpoints as MCP tools over stdio."""

import click


@click.command("mcp")
def mcp() -> None:
    """Serve the reward endpoints as MCP tools over stdio.

    Reads SERVICE_API_URL and SERVICE_PROJECT_KEY from the environment, and speaks JSON-RPC on
    stdin and stdout until stdin closes.
    """
    try:
        # The client is installed without the SDK where nobody asked for it.
        from mcp_server.server import run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"{error.name} is not installed: install deploy-reward-client[mcp]"
        ) from None
    run()
