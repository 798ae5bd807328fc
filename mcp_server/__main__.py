"""The MCP server as a program: `python -m mcp_server`."""

from mcp_server.server import run

if __name__ == "__main__":
    run()
